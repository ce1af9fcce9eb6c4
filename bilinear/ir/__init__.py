"""The languages of the compiler: scheme, schedule, plan and kernel, each a few frozen dataclasses."""
