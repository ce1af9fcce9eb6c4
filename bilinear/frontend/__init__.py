"""The language: `.bl` text to schemes and schedules, with diagnostics, and the lookup of algorithms by name."""

from __future__ import annotations

from bilinear.frontend.algorithms import (
    Loaded,
    LoadedComplex,
    LoadedDigits,
    LoadedGram,
    load,
    load_any,
    load_for_arrays,
    load_shipped,
    names_of_levels,
    parse_source,
)
from bilinear.frontend.resolve import ResolvedFile

__all__ = [
    "Loaded",
    "LoadedComplex",
    "LoadedDigits",
    "LoadedGram",
    "ResolvedFile",
    "load",
    "load_any",
    "load_for_arrays",
    "load_shipped",
    "names_of_levels",
    "parse_source",
]
