"""Thin products, by kernels of our own that read matrices as they lie (docs/thin.md)."""
