"""Read an output folder as another program would, checked to be complete, and run a program of it (docs/manifest.md)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from bilinear.analysis.integer_range import MOST, IntegerRange
from bilinear.artifact.write import ACCUMULATED, ALGORITHM, OVERWRITTEN, FolderOptions
from bilinear.backends.bound_launches import grid_blocks
from bilinear.codegen.build import FLOATS
from bilinear.codegen.cuda.target import CudaTarget
from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPILED, COMPLEX
from bilinear.ir.kernel import Argument, Cover, Grid
from bilinear.ir.matrix import Array, Factor
from bilinear.ir.placement import CONTENTION, INPUTS, MODES, MOST_LEVELS, MOST_PRODUCTS
from bilinear.ir.schedule import IMAGINARY, Space
from bilinear.ir.scheme import block_name
from bilinear.places import FORMAT, MANIFEST, MOST_BYTES
from bilinear.reading import read_bounded

Failure = Callable[[str], BilinearError]


@dataclass(frozen=True)
class Node:
    """A value of a document and its path. If an expectation fails, `failure` turns the message into the exception to raise."""

    value: object
    place: str
    document: str
    failure: Failure

    def wrong(self, what: str) -> BilinearError:
        """The error that this place `is ...`."""
        return self.failure(f"{self.document}: {self.place or 'the document'} {what}")

    def __getitem__(self, key: str) -> Node:
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        inner = self._inner(f".{key}" if self.place else key, self.value.get(key))
        if key not in self.value:
            raise inner.wrong("is missing")
        return inner

    def items(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("is not a list")
        return [self._inner(f"[{i}]", value) for i, value in enumerate(self.value)]

    def pairs(self) -> list[tuple[str, Node]]:
        """The members of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object")
        return [(key, self[key]) for key in self.value]

    def text(self) -> str:
        """A string."""
        if not isinstance(self.value, str):
            raise self.wrong("is not a string")
        return self.value

    def matching(self, pattern: re.Pattern[str]) -> str:
        """A string that the pattern matches as a whole."""
        text = self.text()
        if not pattern.fullmatch(text):
            raise self.wrong(f"is {_short(text)}, which is not allowed here")
        return text

    def choice(self, allowed: Sequence[str]) -> str:
        """One of these strings."""
        text = self.text()
        if text not in allowed:
            raise self.wrong(f"is {_short(text)}, which is not known here")
        return text

    def whole(self, least: int, most: int) -> int:
        """An integer within bounds."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not least <= self.value <= most:
            raise self.wrong(f"is not an integer from {least} to {most}")
        return self.value

    def _inner(self, step: str, value: object) -> Node:
        return Node(value, self.place + step, self.document, self.failure)


def parse(content: bytes, document: str, failure: Failure) -> Node:
    """The root of a document; fails if it is not JSON."""
    try:
        return Node(json.loads(content), "", document, failure)
    except (ValueError, RecursionError) as error:
        raise failure(f"{document} is not JSON: {error}") from None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


AGAIN = "compile the algorithm again"
OPERANDS = ("A", "B", "C")  # The spaces of the operands; those of complex ones are in `IMAGINARY`, too.
EXTENTS = ("bm", "bk", "bn")
_ALGORITHM = re.compile(rf"{re.escape(ALGORITHM)}(:[A-Za-z_][A-Za-z_0-9-]{{0,255}})?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,255}")


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel of a folder: its source, how it is launched, and its images by target, each with its path."""

    name: str
    source: str
    path: str
    threads: tuple[int, int]
    shared_bytes: int
    arguments: tuple[Argument, ...]
    images: tuple[tuple[CudaTarget, str, bytes], ...]


@dataclass(frozen=True)
class BuiltLaunch:
    """One launch: a kernel, where it starts in its table, and its grid."""

    kernel: BuiltKernel
    first: int
    grid: Grid


@dataclass(frozen=True)
class BuiltProgram:
    """The launches for one element type, and those of the plain multiply for the strips."""

    dtype: str
    launches: tuple[BuiltLaunch, ...]
    remainder: tuple[BuiltLaunch, ...]

    @property
    def kernels(self) -> tuple[BuiltKernel, ...]:
        """Every launched kernel, once."""
        return tuple({launch.kernel.name: launch.kernel for launch in (*self.launches, *self.remainder)}.values())


@dataclass(frozen=True)
class BuiltFolder:
    """A complete output folder: every file named in its manifest exists and has the recorded hash; `described` is the manifest itself."""

    path: Path
    name: str
    levels: int
    grid: tuple[int, int, int]
    inputs: str
    overwrites: bool
    workspaces: tuple[Space, ...]
    integers: IntegerRange | None
    programs: tuple[BuiltProgram, ...]
    algorithm: str
    options: FolderOptions
    compiler: str
    described: Mapping[str, object]
    files: Mapping[str, bytes]

    @property
    def is_complex(self) -> bool:
        """Whether the matrices are complex."""
        return self.programs[0].dtype in COMPLEX

    @property
    def operands(self) -> tuple[str, ...]:
        """The spaces of A, B and C; of complex ones their real parts, then the imaginary ones."""
        return OPERANDS + tuple(IMAGINARY[name] for name in OPERANDS if self.is_complex)


def read_folder(folder: str | Path) -> BuiltFolder:
    """Read an output folder of `bilinear compile`. Raises `BilinearError`: E621 for its manifest, E622 for a file that changed."""
    path = Path(folder)
    root = _manifest(path)
    schedule = root["schedule"]
    m, k, n = (schedule["grid"][axis].whole(1, MOST_PRODUCTS) for axis in "mkn")
    if max(m * k, k * n, m * n) > MOST_PRODUCTS:  # a scheme has no fewer products than an operand has blocks
        raise schedule["grid"].wrong("has more blocks than any schedule that is compiled")
    workspaces = tuple(_workspace(node) for node in schedule["workspaces"].items())
    programs = root["programs"].pairs()
    if len({dtype in COMPLEX for dtype, _ in programs}) > 1:
        raise root["programs"].wrong("is of real and of complex types")
    imaginary = IMAGINARY.values() if programs and programs[0][0] in COMPLEX else ()
    names = [*OPERANDS, *imaginary, *(space.name for space in workspaces)]
    if len(set(names)) < len(names):
        raise schedule["workspaces"].wrong("names a space twice")
    values = {*EXTENTS, "first", *(f"{name}{end}" for name in names for end in ("_rs", "_cs"))}
    known = {"pointer": set(names), "index": values, "scalar": {"alpha", "beta"}}
    if not programs:
        raise root["programs"].wrong("is empty")
    built = tuple(_program(path, dtype, node, known) for dtype, node in programs)
    files = {name: _read_whole(path, name, digest.text(), digest) for name, digest in root["files"].pairs()}
    return BuiltFolder(
        path,
        schedule["name"].text(),
        schedule["levels"].whole(1, MOST_LEVELS),
        (m, k, n),
        schedule["inputs"].choice(INPUTS),
        schedule["result"].choice((ACCUMULATED, OVERWRITTEN)) == OVERWRITTEN,
        workspaces,
        _integers(schedule["integers"]),
        built,
        root["algorithm"].matching(_ALGORITHM),
        _options(root),
        root["versions"]["compiler"].text(),
        {name: node.value for name, node in root.pairs()},
        files,
    )


def _options(root: Node) -> FolderOptions:
    root["files"][ALGORITHM].text()
    node = root["options"]
    names = node["inputs"].choice(INPUTS), node["floats"].choice(tuple(FLOATS)), node["mode"].choice(MODES)
    return FolderOptions(node["levels"].whole(1, MOST_LEVELS), *names, node["contention"].choice(CONTENTION))


def _manifest(folder: Path) -> Node:
    path = folder / MANIFEST
    try:
        content = read_bounded(path, MOST_BYTES)
    except OSError as error:
        message = f"{folder} is not an output folder: {MANIFEST} cannot be read: {error.strerror or error}"
        raise fail("E621", message, "give the folder that `bilinear compile --output` wrote") from None
    root = parse(content, MANIFEST, lambda message: fail("E621", message, AGAIN))
    form = root["format"].text()
    if form != FORMAT:
        raise root["format"].wrong(f"is {form!r}, and this version reads {FORMAT!r}")
    return root


def _workspace(node: Node) -> Space:
    name = node["name"].matching(_NAME)
    return Space(name, node["shape"].choice(OPERANDS), node["rows"].whole(1, MOST_PRODUCTS), node["columns"].whole(1, MOST_PRODUCTS))


def _integers(node: Node) -> IntegerRange | None:
    if node.value is None:
        return None
    return IntegerRange(*(node[name].whole(1, MOST) for name in ("left", "right", "result", "denominator")))


def _program(folder: Path, dtype: str, node: Node, known: dict[str, set[str]]) -> BuiltProgram:
    if dtype not in COMPILED:
        raise node.wrong(f"is of an element type that is none of {', '.join(COMPILED)}")
    kernels = {name: _kernel(folder, name, kernel, known) for name, kernel in node["kernels"].pairs()}
    core, rest = ([_launch(launch, kernels) for launch in node[part].items()] for part in ("launches", "remainder"))
    if not core or not rest:
        raise node["remainder" if core else "launches"].wrong("is empty")
    return BuiltProgram(dtype, tuple(core), tuple(rest))


def _kernel(folder: Path, name: str, node: Node, known: dict[str, set[str]]) -> BuiltKernel:
    if not _NAME.fullmatch(name):
        raise node.wrong("has a name that is not a name in C")
    threads = [extent.whole(1, 1024) for extent in node["threads"].items()]
    if len(threads) != 2 or threads[0] * threads[1] > 1024:
        raise node["threads"].wrong("is not two extents of at most 1024 threads")
    path, source = _file(folder, node, "source")
    images = []
    for architecture, image in node["images"].pairs():
        try:
            target = CudaTarget(architecture)
        except BilinearError:
            raise image.wrong("is for an unknown architecture") from None
        images.append((target, *_file(folder, image, "path")))
    kinds = [(argument["kind"].choice(tuple(known)), argument["name"]) for argument in node["arguments"].items()]
    arguments = tuple(Argument(kind, name.choice(tuple(known[kind]))) for kind, name in kinds)
    shared = node["shared_bytes"].whole(0, 227 * 1024)
    try:
        text = source.decode()
    except UnicodeDecodeError:
        raise fail("E622", f"{path} is not text in UTF-8", AGAIN) from None
    return BuiltKernel(name, text, path, (threads[0], threads[1]), shared, arguments, tuple(images))


def _launch(node: Node, kernels: dict[str, BuiltKernel]) -> BuiltLaunch:
    kernel = kernels[node["kernel"].choice(tuple(kernels))]
    tilings = tuple(tuple(_cover(cover) for cover in tiling.items()) for tiling in node["grid"]["x"].items())
    return BuiltLaunch(kernel, node["first"].whole(0, 2**31 - 1), Grid(tilings, node["grid"]["y"].whole(1, 65535)))


def _cover(node: Node) -> Cover:
    pair = node.items()
    if len(pair) != 2:
        raise node.wrong("is not a pair of an extent and a step")
    return Cover(pair[0].choice(EXTENTS), pair[1].whole(1, 2**31 - 1))


def _file(folder: Path, node: Node, key: str) -> tuple[str, bytes]:
    name = node[key].text()
    return name, _read_whole(folder, name, node["sha256"].text(), node[key])


def _read_whole(folder: Path, name: str, wanted: str, node: Node) -> bytes:
    """The content of a file of the folder, if it has the wanted hash; `node` is what names it."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise node.wrong(f"is {name!r}, which is not inside the folder")
    try:
        content = read_bounded(folder / path, MOST_BYTES)
    except OSError as error:
        raise fail("E622", f"{name} is named in {MANIFEST} and cannot be read: {error.strerror or error}", AGAIN) from None
    found = hashlib.sha256(content).hexdigest()
    if found != wanted:
        note = f"its SHA-256 is {found[:16]}..., and {MANIFEST} says {wanted[:16]}..."
        raise fail("E622", f"{name} is not the file that was written", AGAIN, notes=(note,))
    return content


Values = dict[str, Array]
Shape = tuple[int, int, int]


class FolderMachine(Protocol):
    """Where launches run: emulated, or on a GPU."""

    def address(self, array: Array) -> Array:
        """The value passed for a pointer to the first element of a matrix."""

    def workspace(self, space: Space, rows: int, columns: int) -> Array:
        """An uninitialised matrix of this many elements."""

    def launch(self, kernel: BuiltKernel, blocks: tuple[int, int, int], arguments: tuple[tuple[str, Array], ...]) -> None:
        """Run one kernel; the arguments are pairs of a kind and a value."""


def core_of(folder: BuiltFolder, shape: Shape) -> Shape:
    """The part that the launches compute: the largest multiples of the grid; all 0 if one of them is 0."""
    m, k, n = (extent - extent % step for extent, step in zip(shape, folder.grid, strict=True))
    return (m, k, n) if m and k and n else (0, 0, 0)


def multiply(machine: FolderMachine, folder: BuiltFolder, program: BuiltProgram, operands: Values, alpha: Factor, beta: Factor) -> None:
    """C = alpha * A @ B + beta * C on 2-D arrays, named A, B and C, and Ai, Bi and Ci if these are the imaginary parts.

    If the launches overwrite C, beta must be 0.
    """
    shape = _shape(operands)
    m, k, n = core_of(folder, shape)
    rest, *strips = (
        _cut(operands, *ranges)
        for ranges in (
            (slice(m), slice(k, None), slice(n)),
            (slice(m), slice(None), slice(n, None)),
            (slice(m, None), slice(None), slice(None)),
        )
    )
    for strip in strips if folder.overwrites else (rest, *strips):
        _run_strip(machine, program, strip, alpha, beta)
    if m:
        bm, bk, bn = (extent // steps for extent, steps in zip((m, k, n), folder.grid, strict=True))
        spaces, extents_of = _cut(operands, slice(m), slice(k), slice(n)), {"A": (bm, bk), "B": (bk, bn), "C": (bm, bn)}
        for space in folder.workspaces:
            height, width = extents_of[space.shape]
            spaces[space.name] = machine.workspace(space, space.rows * height, space.columns * width)
        core_beta = 1 if k < shape[1] and not folder.overwrites else beta
        _run(machine, program.launches, spaces, (bm, bk, bn), alpha, core_beta)
    if folder.overwrites:
        _run_strip(machine, program, rest, alpha, 1)


def _shape(operands: Values) -> Shape:
    m, k = operands["A"].shape
    return m, k, operands["B"].shape[1]


def _cut(operands: Values, rows: slice, inner: slice, columns: slice) -> Values:
    """A part of the product: some rows and columns of C, and some of the terms."""
    ranges = {"A": (rows, inner), "B": (inner, columns), "C": (rows, columns)}
    return {name: x[ranges[name[0]]] for name, x in operands.items()}


def _run_strip(machine: FolderMachine, program: BuiltProgram, operands: Values, alpha: Factor, beta: Factor) -> None:
    if operands["A"].size and operands["C"].size:
        _run(machine, program.remainder, operands, _shape(operands), alpha, beta)


def first_difference(folder: BuiltFolder, shape: Shape, name: str, wrong: Array) -> str:
    """The first block that differs, and the number of such blocks."""
    rows, columns = {"A": (0, 1), "B": (1, 2), "C": (0, 2)}[name[0]]
    core = core_of(folder, shape)
    if core[0]:
        height, width = core[rows] // folder.grid[rows], core[columns] // folder.grid[columns]
        inner = wrong[: core[rows], : core[columns]].reshape(folder.grid[rows], height, folder.grid[columns], width).any(axis=(1, 3))
        places = np.argwhere(inner)
        if len(places):
            i, j = (int(x) for x in places[0])
            element = np.argwhere(wrong[i * height : (i + 1) * height, j * width : (j + 1) * width])[0]
            count = f"{len(places)} of {inner.size} blocks" if len(places) > 1 else "the only block"
            return f"{block_name(name[0], i, j)} differs, first in row {element[0]}, column {element[1]} of the block ({count})"
    i, j = (int(x) for x in np.argwhere(wrong)[0])
    return f"row {i}, column {j} differs, in the strips that the grid leaves over"


def _run(machine: FolderMachine, launches: tuple[BuiltLaunch, ...], spaces: Values, extents: Shape, alpha: Factor, beta: Factor) -> None:
    values: Values = {**dict(zip(EXTENTS, extents, strict=True)), "alpha": alpha, "beta": beta}
    for name, array in spaces.items():
        values[name] = machine.address(array)
        values[f"{name}_rs"], values[f"{name}_cs"] = (stride // array.itemsize for stride in array.strides)
    for launch in launches:
        own = {**values, "first": launch.first}
        arguments = tuple((argument.kind, own[argument.name]) for argument in launch.kernel.arguments)
        machine.launch(launch.kernel, (*grid_blocks(launch.grid, values), 1), arguments)
