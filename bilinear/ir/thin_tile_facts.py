"""What all tiles of the kernels for thin products tell about the instructions they use."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ThinTileFacts:
    """Facts of a template, which the tiles of one kind have in common. Those here are of tiles on the multiply-add pipes."""

    least_capability: int = field(default=80, init=False)
    """The least compute capability, times ten, of a device that runs it: all of them copy asynchronously."""
    features: str = field(default="", init=False)
    """The suffix of the architecture if no later one runs it."""
    times_doubles: float = field(default=0.0, init=False)
    """How many products its matrix unit does while the unit for doubles does one, by data sheets; 0 on the pipes."""
    long_line: int = field(default=0, init=False)
    """The least rows of a tile for which a column of A by itself is worth a bulk copy."""
    copies_lines: bool = field(default=False, init=False)
    """Whether a slice takes the time of its lines to copy, however long they are."""
    copies_beside: bool = field(default=False, init=False)
    """Whether copies take no time of the warps that multiply, and less than the memory's."""

    def runs_on(self, capability: int) -> bool:
        """Whether a device of this compute capability, times ten, has its instructions."""
        return capability == self.least_capability if self.features else capability >= self.least_capability

    @property
    def turns(self) -> int:
        """Units, each a tile of the result, that a block of threads has in hand at once."""
        return 1

    @property
    def strips(self) -> bool:
        """Whether a block keeps B for a strip of columns, so that a result may be wider than the tile although B is one slice."""
        return False

    @property
    def writes_parts(self) -> bool:
        """Whether each warp writes its own short parts of lines of the result, which may end within what memory writes at once."""
        return False

    @property
    def on_units(self) -> bool:
        """Whether it multiplies on matrix units."""
        return self.times_doubles > 0

    @property
    def block(self) -> tuple[int, int, int] | None:
        """The rows, columns and terms of an instruction, if those outside of the result are left out; else None."""
        return None
