"""Completions that a shell offers: names of algorithms, devices and architectures, found when the shell asks."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

Names = Callable[[str], list[str]]
DTYPES = "float64", "float32"
FORMATS = "fast-matmul", "json", "sms", "npz"
RINGS = "Z", "Z/2", "Z/3", "Q", "Q[sqrt(3)]", "Q[i]", "Q[lambda]"


def _of(*words: str) -> Names:
    return lambda incomplete: _beginning(words, incomplete)


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


levels = _of("1", "2", "3", "auto")
inputs = _of("preserve", "restore", "consume")
formats = _of(*FORMATS)
rings = _of(*RINGS)
floats = _of("own", "doubles")
modes = _of("stage", "S-M-T", "S-T-M", "S-M-M", "M-M-M")
contention = _of("colours", "atomics")
emitted = _of("c")
usable = _of("cpu", "gpu", "all")
workspaces = _of("none", "unlimited", "1GiB", "2GiB", "4GiB")
accuracies = _of("classical", "twice", "1e-6", "1e-12")


def listed(words: Callable[[], Iterable[str]]) -> Names:
    """Offers words for the last place of a list that is separated by commas."""

    def offered(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{word}" for word in _beginning(words(), last)]

    return offered


dtypes = listed(lambda: DTYPES)


def elements(incomplete: str) -> list[str]:
    """Element types for which plans are made."""
    from bilinear.ir.element import COMPLEX, ELEMENTS

    return _beginning(ELEMENTS | COMPLEX, incomplete)


def _architectures() -> list[str]:
    from bilinear.codegen.cuda.target import FAMILIES

    return ["native", *FAMILIES, *FAMILIES.values(), *(name.replace("sm", "compute") for name in FAMILIES.values())]


architectures = listed(_architectures)


def _names() -> list[str]:
    """The shipped algorithms, and the user's own; no file is read."""
    from bilinear.resources import algorithms_folder

    return sorted({*(path.stem for path in algorithms_folder().glob("*.bl")), *_own()})


def _own() -> list[str]:
    from bilinear.resources import own_folder

    folder = own_folder()
    return [] if folder is None else sorted(path.stem for path in folder.glob("*.bl"))


def algorithms(incomplete: str) -> list[str]:
    """Names of algorithms, and files of the language."""
    return [*_beginning(_names(), incomplete), *_files(incomplete, ".bl")]


names = listed(_names)


def own_names(incomplete: str) -> list[str]:
    """The algorithms that the user has added."""
    return _beginning(_own(), incomplete)


def devices(incomplete: str) -> list[str]:
    """Shipped descriptions, `cpu`, and files that `tune` wrote."""
    from bilinear.planner.device_files import known_devices

    return [*_beginning(["cpu", *sorted(known_devices())], incomplete), *_files(incomplete, ".json")]


def codes(incomplete: str) -> list[str]:
    """The codes of errors."""
    from bilinear.resources import diagnostics_page

    text = diagnostics_page().read_text(encoding="utf-8")
    return _beginning(re.findall(r"(?m)^### (E\d{3}) ", text), incomplete.upper())


def _files(incomplete: str, suffix: str) -> list[str]:
    """Files of a kind that begin so, and folders on the way to them."""
    folder, name = os.path.split(incomplete)
    try:
        found = sorted(path for path in Path(folder or ".").iterdir() if path.name.startswith(name) and not path.name.startswith("."))
    except OSError:
        return []
    places = [(os.path.join(folder, path.name), path) for path in found]
    return [f"{place}/" if path.is_dir() else place for place, path in places if path.is_dir() or path.suffix == suffix]
