"""Targets: the architectures for which kernels are built, as data. Passes, lowering and runtime do not depend on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bilinear.errors import fail

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
OLDEST = 80  # The first compute capability, times ten, that copies asynchronously to shared memory.
FAMILIES = {"ampere": "sm_80", "ada": "sm_89", "hopper": "sm_90", "blackwell": "sm_100"}
"""Architectures by the names of their families: a cubin for the first chip of each."""
WARPGROUPS = 90  # The compute capability, times ten, that has the matrix instructions of warpgroups.
HINT = f"name a chip, such as sm_80 or sm_90, for a cubin, compute_NN for PTX, or one of {', '.join(FAMILIES)}"
_RESIDENT = {
    80: (64, 32, 164),
    86: (48, 16, 100),
    87: (48, 16, 164),
    89: (48, 24, 100),
    90: (64, 32, 228),
    100: (64, 32, 228),
    120: (48, 24, 100),
}
"""By compute capability, times ten: how many warps, blocks and KiB of shared memory a multiprocessor holds (CUDA programming guide 13.0). A
capability between two of these holds what the older one does."""
REGISTERS, GRANULE, SHARED_OF_SYSTEM = 65536, 256, 1024
"""The registers of a multiprocessor, how many a warp takes at a time, and the bytes of shared memory that the system takes of a block."""
_NAME = re.compile(r"(sm|compute)_(\d{2,3})([af]?)", re.ASCII)
_SUFFIX_SINCE = {"": 0, "a": 90, "f": 100}
"""By suffix, the first compute capability, times ten, with features of one chip (a) or of a family of chips (f)."""


@dataclass(frozen=True)
class CudaTarget:
    """A CUDA architecture by its name: `sm_NN` is a chip, `compute_NN` a virtual architecture, whose images newer chips run, too.

    Raises `BilinearError` (E603) if the name is not of this form. `nvrtc.build` checks that the compiler knows the architecture.
    """

    name: str

    def __post_init__(self) -> None:
        match = _NAME.fullmatch(self.name)
        if match is None or int(match[2]) < _SUFFIX_SINCE[match[3]]:
            raise fail("E603", f"{self.name!r} names no CUDA architecture", HINT)

    def __str__(self) -> str:
        return self.name

    @property
    def is_virtual(self) -> bool:
        """Whether the driver translates the images for its chip."""
        return self.name.startswith("compute")

    @property
    def kind(self) -> str:
        """The kind of image, also the suffix of its file: machine code (`cubin`) or assembly of a virtual architecture (`ptx`)."""
        return "ptx" if self.is_virtual else "cubin"

    @property
    def capability(self) -> int:
        """The compute capability, times ten."""
        return int(self.name.partition("_")[2].rstrip("af"))

    @property
    def has_warpgroups(self) -> bool:
        """Whether its chip has the matrix instructions of warpgroups, which no other chip has: then kernels are built for it alone."""
        return self.capability == WARPGROUPS and not self.is_virtual

    @property
    def assembled(self) -> CudaTarget:
        """The chip for which its code is assembled: itself, or the first one that a virtual architecture stands for."""
        return CudaTarget(self.name.replace("compute", "sm"))

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the compiler."""
        return (f"--gpu-architecture={self.name}", *OPTIONS)

    def occupancy(self, threads: int, registers: int, shared_bytes: int) -> tuple[int, float, str]:
        """How many blocks of so many threads, registers a thread and bytes of shared memory a multiprocessor holds at once.

        And which part of the threads that it can hold that is, and which of these allows no more.
        """
        warps, blocks, shared = _RESIDENT[max(known for known in _RESIDENT if known <= self.capability)]
        own_warps = -(-threads // 32)
        own_registers = own_warps * -(-32 * max(registers, 1) // GRANULE) * GRANULE
        most = {"threads": warps // own_warps, "registers": REGISTERS // own_registers}
        most |= {"shared memory": shared * 1024 // (shared_bytes + SHARED_OF_SYSTEM), "blocks": blocks}
        limit = min(most, key=lambda name: most[name])
        return most[limit], most[limit] * own_warps / warps, limit

    def path(self, kernel: str) -> str:
        """The place of a kernel's image in an output folder."""
        return f"{self.kind}/{self.name}/{kernel}.{self.kind}"

    def runs_on(self, capability: int) -> bool:
        """Whether an image runs on a device of this compute capability, times ten (docs/manifest.md has the rules)."""
        own = self.capability
        if self.name[-1] in "af":
            return own == capability
        return own <= capability and (self.is_virtual or own // 10 == capability // 10)


def target_of(capability: str | int) -> CudaTarget:
    """The target of a device of this compute capability, times ten."""
    return CudaTarget(f"sm_{capability}")


def targets_of(names: Sequence[str]) -> tuple[CudaTarget, ...]:
    """The targets of these names, each once. Raises `BilinearError` (E603) if there is no name, or no kernels can be built for one."""
    distinct = names if isinstance(names, str) else tuple(dict.fromkeys(FAMILIES.get(name, name) for name in names))
    if isinstance(distinct, str) or not distinct:
        raise fail("E603", f"architectures={distinct!r} names no architecture", "give a list such as ['sm_90', 'compute_90']")
    targets = tuple(map(CudaTarget, distinct))
    for target in targets:
        require_built_for(target)
    return targets


def require_built_for(target: CudaTarget) -> None:
    """Refuse (E603) an architecture that lacks what the kernels need."""
    if target.capability < OLDEST:
        raise fail("E603", f"no kernels for {target}: they copy asynchronously, which begins with sm_{OLDEST}", HINT)
