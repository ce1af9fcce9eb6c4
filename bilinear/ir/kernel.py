"""A kernel: all that a template needs to print one CUDA function, and all that a caller needs to launch it."""

from __future__ import annotations

from dataclasses import dataclass, field

from bilinear.ir.element import Element, Precision
from bilinear.ir.evaluation import Evaluation
from bilinear.ir.number import Coefficient
from bilinear.ir.tile import ProductTile, precision_of


@dataclass(frozen=True)
class Argument:
    """A parameter: `name` is looked up among the call's values.

    Kinds: `pointer` (first element of the space `name`), `index` (64-bit), `scalar` (of the kernel's element type), `flag` (the address of
    an int). A space X has the indices `X_rs` and `X_cs`, the distance in elements between rows and between columns; `bm`, `bk`, `bn` are
    the extents of a block; `first` is where the launch starts in the kernel's table.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class Cover:
    """Tiles that cover the extent `name` in steps of `step`: the quotient, rounded up."""

    name: str
    step: int


@dataclass(frozen=True)
class Grid:
    """The launch grid: along x the most that one of the `tilings` needs, each a product of covers; along y a row of the table each."""

    tilings: tuple[tuple[Cover, ...], ...]
    y: int


@dataclass(frozen=True)
class Port:
    """One block that a part reads or writes: so many blocks down and to the right of where the part stands in the space."""

    space: str
    down: int
    right: int


@dataclass(frozen=True)
class Part:
    """An exact map in registers, on blocks of `height` x `width`; `rows` of the table are the places where it runs."""

    number: int
    height: str
    width: str
    spaces: tuple[str, ...]
    """The spaces that it reads or writes, in the order of the table's columns."""
    sources: tuple[Port, ...]
    targets: tuple[Port, ...]
    additions: int
    evaluation: Evaluation
    kept: tuple[str, ...]
    """By target what its old value is multiplied by before the form is added: 0, 1 or beta."""


@dataclass(frozen=True)
class LinearKernel:
    """Applies block maps: each row of its table is one part at one place; `lanes` neighbouring elements a thread at a time."""

    name: str
    comment: str
    element: Element
    arguments: tuple[Argument, ...]
    threads: tuple[int, int]
    lanes: int
    parts: tuple[Part, ...]
    places: tuple[tuple[int, ...], ...]
    """One row a place: the part's number, then the grid row and column where it stands in each of its spaces."""
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="linear.cu.j2", init=False)


@dataclass(frozen=True)
class Destination:
    """A block of a space that a product goes to, its coefficient, and what the old value is multiplied by: 0, 1 or beta."""

    space: int
    row: int
    column: int
    coefficient: Coefficient
    kept: str


@dataclass(frozen=True)
class Multiplication:
    """One product of a launch: (number of the space, grid row, grid column) of each operand, and a range of the destinations."""

    left: tuple[int, int, int]
    right: tuple[int, int, int]
    first_destination: int
    destinations: int


@dataclass(frozen=True)
class ProductKernel:
    """Multiplies: each row of its table is one product, which goes to a list of blocks; those of one launch share no destination.

    `lefts`, `rights` and `results` are the spaces that operands and destinations are numbered by.
    """

    name: str
    comment: str
    element: Element
    arguments: tuple[Argument, ...]
    tile: ProductTile
    lefts: tuple[str, ...]
    rights: tuple[str, ...]
    results: tuple[str, ...]
    products: tuple[Multiplication, ...]
    destinations: tuple[Destination, ...]

    @property
    def template(self) -> str:
        """The template of the tile's instructions."""
        return self.tile.template

    @property
    def begins(self) -> tuple[bool, ...]:
        """For each result whether some of its blocks keep beta times what was there, and so none of them is overwritten."""
        with_beta = {d.space for d in self.destinations if d.kept == "beta"}
        return tuple(space in with_beta for space in range(len(self.results)))

    @property
    def bounds(self) -> str:
        """What the compiler is told of a launch: threads of a block, and blocks of a multiprocessor."""
        return f"{self.tile.threads}, {self.tile.blocks}"

    @property
    def lanes(self) -> int:
        """Elements of 16 bytes, which threads copy at once."""
        return self.element.lanes

    @property
    def precision(self) -> Precision:
        """In which types its products run."""
        return precision_of(self.element, self.tile)

    @property
    def shared_elements(self) -> int:
        """Elements of the slices under way, which the text asserts of its own places."""
        return self.tile.stages * self.tile.slice_elements(self.lanes)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block of threads: the slices under way."""
        return self.shared_elements * self.element.bytes

    @property
    def threads(self) -> tuple[int, int]:
        """Threads of a block along x and y."""
        return (self.tile.threads, 1)


@dataclass(frozen=True)
class ScanKernel:
    """One launch that looks at every element of the matrix X (rows x columns) for values that are not finite."""

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    arguments: tuple[Argument, ...] = (
        Argument("pointer", "X"),
        Argument("index", "X_rs"),
        Argument("index", "X_cs"),
        Argument("index", "rows"),
        Argument("index", "columns"),
        Argument("flag", "found"),
    )
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="scan.cu.j2", init=False)


@dataclass(frozen=True)
class MagnitudeKernel:
    """One launch that finds max|x| of every block of the matrix X, which is cut into `across` blocks a row, each rows x columns.

    The threads of a block are a power of two, for they halve what they have found.
    """

    name: str
    element: Element
    threads: tuple[int, int] = (256, 1)
    shared_bytes: int = field(default=0, init=False)
    template: str = field(default="magnitudes.cu.j2", init=False)


Kernel = LinearKernel | ProductKernel
InputKernel = ScanKernel | MagnitudeKernel
"""What looks at the inputs before a plan may write them."""


@dataclass(frozen=True)
class Launch:
    """A stage as it runs: rows `first` to `first + grid.y` of the kernel's table."""

    kernel: Kernel
    first: int
    grid: Grid


@dataclass(frozen=True)
class ScanLaunch:
    """A look at a matrix as it runs."""

    kernel: ScanKernel
    grid: Grid
    first: int = field(default=0, init=False)
