"""Targets: what kernels are built for, as data. Another target of the same kind needs no change in passes, lowering or runtime."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bilinear.errors import fail

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_NAME = re.compile(r"(sm|compute)_(\d{2,3})([af]?)", re.ASCII)
_SUFFIX_SINCE = {"": 0, "a": 90, "f": 100}
"""The first compute capability, times ten, that has features of one chip (a) or of a family of chips (f)."""


@dataclass(frozen=True)
class CudaTarget:
    """A CUDA architecture by its name: `sm_NN` is a chip, `compute_NN` the virtual architecture that newer chips understand, too.

    Raises `BilinearError` (E603) where the name means none. Whether a compiler knows the architecture is the compiler's to say.
    """

    name: str

    def __post_init__(self) -> None:
        match = _NAME.fullmatch(self.name)
        if match is None or int(match[2]) < _SUFFIX_SINCE[match[3]]:
            hint = "name a chip, such as sm_80 or sm_90, for a cubin, or compute_NN for PTX"
            raise fail("E603", f"{self.name!r} names no CUDA architecture", hint)

    def __str__(self) -> str:
        return self.name

    @property
    def is_virtual(self) -> bool:
        """Whether the driver translates its images for the chip, which it does for newer chips, too."""
        return self.name.startswith("compute")

    @property
    def kind(self) -> str:
        """What an image is: machine code (`cubin`) or assembly of a virtual architecture (`ptx`). Its files end so."""
        return "ptx" if self.is_virtual else "cubin"

    @property
    def capability(self) -> int:
        """The compute capability, times ten."""
        return int(self.name.partition("_")[2].rstrip("af"))

    @property
    def options(self) -> tuple[str, ...]:
        """What the compiler is told."""
        return (f"--gpu-architecture={self.name}", *OPTIONS)

    def path(self, kernel: str) -> str:
        """Where an output folder has the image of a kernel."""
        return f"{self.kind}/{self.name}/{kernel}.{self.kind}"

    def runs_on(self, capability: int) -> bool:
        """Whether an image runs on a device of this compute capability, times ten: docs/manifest.md says which do."""
        own = self.capability
        if self.name[-1] in "af":
            return own == capability
        return own <= capability and (self.is_virtual or own // 10 == capability // 10)


def target_of(capability: str | int) -> CudaTarget:
    """The target of a device of this compute capability, times ten."""
    return CudaTarget(f"sm_{capability}")


def targets_of(names: Sequence[str]) -> tuple[CudaTarget, ...]:
    """The targets of some names, each once; raises `BilinearError` (E603) where there is none, or a name means none."""
    if isinstance(names, str) or not names:
        raise fail("E603", f"architectures={names!r} names nothing to build for", "give a list such as ['sm_90', 'compute_90']")
    return tuple(CudaTarget(name) for name in dict.fromkeys(names))
