"""The compiler's languages: element, tile, scheme, schedule, placement and kernel, each a few frozen dataclasses."""
