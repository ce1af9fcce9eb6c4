"""Test the sources of an output folder as polynomial identities: compile them for the CPU over a prime field, run, and compare.

Running a text whose elements are numbers modulo p = 2^61 - 1 evaluates exactly the polynomials that it computes, at the elements of A, B
and C, alpha and beta. C must be alpha * A * B + beta * C, a polynomial of degree 3. Every element also carries its formal degree, and
degrees above 3 are refused, so the difference between actual and required result has degree at most 3. If it is not zero, it vanishes at
independent uniform nonzero residues with probability at most 3 / (p - 1) (DeMillo and Lipton 1978, Zippel 1979, Schwartz 1980). This holds
for texts whose only branch on data is beta = 0, as in the templates, and for a random generator, seeded with 128 bits from the system.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from bilinear.artifact.findings import BuiltRow
from bilinear.artifact.read import AGAIN, BuiltFolder, BuiltKernel, BuiltProgram, Shape, first_difference, multiply
from bilinear.codegen.build import Progress
from bilinear.emulator import ORDERS, CompiledModule, CompileError, LaunchError, Order, compile_on_cpu, guarded, guarded_empty, skip_reason
from bilinear.emulator import field as prime
from bilinear.emulator.field import PRIME
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.ir.element import COMPILED
from bilinear.ir.matrix import Array
from bilinear.ir.number import nearest
from bilinear.ir.schedule import Space

WHERE = "CPU, modulo 2^61-1"
DEGREE = 3
TRIALS = len(ORDERS)  # One trial for each order of threads and blocks; two would give a chance below 2^-118.
LARGE_GRID = 64  # If the product of a grid's extents is larger, blocks stay within one tile to save time.
MOST_SECONDS = 60.0  # The time limit of a launch; launches of two levels take less than one second.
_INEXACT = re.compile(r"\bReal\(-?[0-9][^()]*[.e][^()]*\)")
_C_TYPES = {"pointer": f"{prime.ELEMENT} *", "index": "long long", "scalar": prime.ELEMENT}


@dataclass(frozen=True)
class IdentityCase:
    """A shape, the layout of A, B and C (C rows, F columns, S strided with gaps), and whether beta is 0 and C undefined."""

    shape: Shape
    layouts: str
    beta_is_zero: bool

    def __str__(self) -> str:
        words = {"C": "rows", "F": "columns", "S": "gaps"}
        return f"{'/'.join(words[x] for x in self.layouts)}, beta {'= 0' if self.beta_is_zero else 'random'}"


def cases(folder: BuiltFolder) -> tuple[IdentityCase, ...]:
    """Blocks with several tiles and depth slices, also in the strips; deep, tall and wide ones, with and without strips; whole lanes."""
    grid = folder.grid
    tall, wide, edge = (136, 140, 129) if math.prod(grid) <= LARGE_GRID else (24, 20, 33)  # edge: one more than the tiles take
    lanes = _shape(grid, (16, 16, 32), strips=False)
    return (
        IdentityCase(_shape(grid, (tall, 40, wide), strips=False), "CCC", False),
        IdentityCase(_shape(grid, (edge, 17, edge), strips=True), "CFC", True),
        IdentityCase(_shape(grid, (9, 150, 13), strips=True), "FFF", False),
        IdentityCase(_shape(grid, (9, 37, 13), strips=True), "SFC", True),
        IdentityCase(_shape(grid, (edge, 7, 5), strips=False), "CCF", True),
        IdentityCase(_shape(grid, (6, 10, wide + 2), strips=False), "CCC", True),
        IdentityCase(lanes, "FCF", True),
        IdentityCase(lanes, "CSS", False),
    )


def _shape(grid: Shape, block: Shape, strips: bool) -> Shape:
    """A problem with blocks of this size; with strips, as many more rows and columns as the grid can leave over."""
    m, k, n = (steps * extent + (steps - 1 if strips else 0) for steps, extent in zip(grid, block, strict=True))
    return m, k, n


def chance(trials: int) -> str:
    """The bound on the probability that a wrong text passes this many trials."""
    return f"2^{-math.floor(trials * (math.log2(prime.PRIME - 1) - math.log2(DEGREE)))}"


def check_sources(folder: BuiltFolder, program: BuiltProgram, seed: int, progress: Progress) -> Iterator[BuiltRow | Diagnostic]:
    """Test the sources of one program, one row a case; a diagnostic follows the first wrong row and ends the test.

    C is compared with the classical product modulo p. If the folder promises to preserve A and B, they lie in read-only memory; if it
    promises to restore them, they are compared afterwards. All arrays border on inaccessible pages; a workspace holds random or undefined
    elements. Diagnostics are E623 (wrong) and E624 (refused by the compiler, or ended by an error).
    """
    reason = skip_reason()
    if reason is None and any(_INEXACT.search(kernel.source) for kernel in program.kernels):
        reason = "a constant that is not a rational number has no image in the field"
    exacts = (exact for kernel in program.kernels for _, exact in _NEAREST.findall(kernel.source))
    if reason is None and any(Fraction(exact).denominator % PRIME == 0 for exact in exacts):
        reason = "the denominator of a constant is a multiple of 2^61-1"
    if reason is not None:
        yield BuiltRow(program.dtype, WHERE, "-", "-", 0, "", "skipped", reason)
        return
    start = time.perf_counter()
    try:
        check_constants(program)
        modules = _compile(program)
    except BilinearError as error:
        yield BuiltRow(program.dtype, WHERE, "-", "compile the sources", 0, "", "wrong", "", time.perf_counter() - start)
        yield from error.diagnostics
        return
    todo = cases(folder)
    for number, case in enumerate(todo):
        progress(f"{program.dtype} sources", number, len(todo))
        start = time.perf_counter()
        found = _check_case(folder, program, modules, case, (seed, number))
        shape, seconds = "x".join(map(str, case.shape)), time.perf_counter() - start
        verdict, bound = ("passed", chance(TRIALS)) if found is None else ("wrong", "")
        yield BuiltRow(program.dtype, WHERE, shape, str(case), TRIALS, bound, verdict, "", seconds)  # type: ignore[arg-type]
        if found is not None:
            yield found
            return
    progress(f"{program.dtype} sources", len(todo), len(todo))


def _compile(program: BuiltProgram) -> dict[str, CompiledModule]:
    def compiled(kernel: BuiltKernel) -> CompiledModule:
        types = {kernel.name: [_C_TYPES[argument.kind] for argument in kernel.arguments]}
        try:
            return compile_on_cpu(kernel.source, types, flags=("-O1", f"-DREAL={prime.ELEMENT}"), include=(prime.HEADER,))
        except CompileError as error:
            first = next((line for line in str(error).splitlines() if "error:" in line), str(error))
            note = f"the host's compiler says: {first.strip()}"
            message = f"{kernel.path} cannot be compiled over a prime field"
            raise fail("E624", message, AGAIN, notes=(note,)) from None

    with ThreadPoolExecutor() as pool:
        return dict(zip((kernel.name for kernel in program.kernels), pool.map(compiled, program.kernels), strict=True))


def _check_case(
    folder: BuiltFolder, program: BuiltProgram, modules: dict[str, CompiledModule], case: IdentityCase, seed: tuple[int, int]
) -> Diagnostic | None:
    for trial, order in enumerate(ORDERS):
        generator = np.random.default_rng((*seed, trial))
        machine = Emulated(program.dtype, modules, order, generator, undefined=trial % 2 == 1)
        given = f"{program.dtype}, {'x'.join(map(str, case.shape))}, {case}, threads in {order} order"
        try:
            fault = _fault(folder, program, machine, case)
        except (LaunchError, ValueError, OverflowError, MemoryError) as error:
            return fail("E624", f"a kernel fails: {error}", AGAIN, notes=(given,)).diagnostics[0]
        if fault is not None:
            return fail("E623", fault[0], AGAIN, notes=(*fault[1:], given)).diagnostics[0]
    return None


def _fault(folder: BuiltFolder, program: BuiltProgram, machine: Emulated, case: IdentityCase) -> tuple[str, ...] | None:
    m, k, n = case.shape
    generator = machine.generator
    shapes, layouts = {"A": (m, k), "B": (k, n), "C": (m, n)}, dict(zip("ABC", case.layouts, strict=True))
    first = {name: prime.random_words(generator, shapes[name[0]]) for name in folder.operands}
    alpha, beta = (int(word) for word in prime.random_words(generator, (2,)))
    kept, no_beta = folder.inputs == "preserve", case.beta_is_zero or folder.overwrites
    laid = {name: _lay_out(x, layouts[name[0]], kept and name[0] != "C") for name, x in first.items()}
    arrays = {name: array for name, (array, _) in laid.items()}
    results = [name for name in arrays if name[0] == "C"]
    for name in results if no_beta else ():
        arrays[name][...] = prime.UNDEFINED
    multiply(machine, folder, program, arrays, alpha, 0 if no_beta else beta)
    if folder.inputs == "restore":
        for name, x in arrays.items():
            if name not in results and not np.array_equal(x, first[name]):
                return (f"{name} is not restored: {first_difference(folder, case.shape, name, x != first[name])}",)
    for name, (_, memory) in laid.items():
        gaps = np.full(memory.shape, layouts[name[0]] == "S")
        gaps[::2, ::3] = False
        if (memory[gaps] != prime.UNDEFINED).any():
            return (f"elements between the rows and columns of {name} are written",)
    values = {name: prime.values(x) for name, x in first.items()}
    for name, product in _products(values).items():
        wanted = prime.multiply(product, alpha & prime.PRIME)
        if not no_beta:
            wanted = prime.add(wanted, prime.multiply(values[name], beta & prime.PRIME))
        fault = _wrong(folder, case, name, arrays[name], wanted)
        if fault is not None:
            return fault
    return None


def _products(values: dict[str, prime.Words]) -> dict[str, prime.Words]:
    """A * B modulo p by its space, or if A and B are complex, its real and its imaginary part."""
    if "Ai" not in values:
        return {"C": prime.matmul(values["A"], values["B"])}
    real, minus, one, other = (prime.matmul(values[x], values[y]) for x, y in (("A", "B"), ("Ai", "Bi"), ("A", "Bi"), ("Ai", "B")))
    return {"C": prime.add(real, prime.multiply(minus, prime.PRIME - 1)), "Ci": prime.add(one, other)}


def _wrong(folder: BuiltFolder, case: IdentityCase, name: str, found: Array, wanted: prime.Words) -> tuple[str, ...] | None:
    undefined, high = prime.degrees(found) == 7, prime.degrees(found) > DEGREE
    wrong = (prime.values(found) != wanted) | high
    if not wrong.any():
        return None
    notes = [f"{int(undefined.sum())} element(s) depend on memory that was never written"] if undefined.any() else []
    notes += ["a polynomial of a degree above 3 is computed"] if (high & ~undefined).any() else []
    part = "C" if not folder.is_complex else "the imaginary part of C" if name == "Ci" else "the real part of C"
    return (f"{part} is not alpha * A * B + beta * C: {first_difference(folder, case.shape, name, wrong)}", *notes)


def _lay_out(words: prime.Words, layout: str, read_only: bool) -> tuple[Array, Array]:
    """A copy at the end of its memory page, by rows, by columns, or with gaps of undefined elements; the matrix and its memory."""
    if layout == "C":
        memory = guarded(words, read_only=read_only)
        return memory, memory
    if layout == "F":
        memory = guarded(np.ascontiguousarray(words.T), read_only=read_only)
        return memory.T, memory
    wide = np.full((words.shape[0] * 2, words.shape[1] * 3), prime.UNDEFINED, np.uint64)
    wide[::2, ::3] = words
    memory = guarded(wide, read_only=read_only)
    return memory[::2, ::3], memory


@dataclass
class Emulated:
    """Emulated kernels over the field as a machine, with one order of threads; workspaces hold random or undefined elements."""

    dtype: str
    modules: dict[str, CompiledModule]
    order: Order
    generator: np.random.Generator
    undefined: bool
    launches: int = 0

    def address(self, array: Array) -> Array:
        """The array itself: the emulator takes its address and names it in reports."""
        return array

    def workspace(self, space: Space, rows: int, columns: int) -> Array:
        """A matrix that borders on inaccessible pages, by columns if it is undefined."""
        array = guarded_empty((rows, columns), np.uint64, "F" if self.undefined else "C")
        if not self.undefined:
            array[...] = prime.random_words(self.generator, (rows, columns))
        return array

    def launch(self, kernel: BuiltKernel, blocks: tuple[int, int, int], arguments: tuple[tuple[str, Array], ...]) -> None:
        """Run one kernel; shared memory is scaled to the field's elements of 8 bytes."""
        self.launches += 1
        shared = kernel.shared_bytes * 8 // COMPILED[self.dtype].arithmetic.bytes
        values = [value for _, value in arguments]
        module = self.modules[kernel.name]
        threads, order, seed = (*kernel.threads, 1), self.order, self.launches
        module.launch(kernel.name, blocks, threads, values, order=order, seed=seed, shared_bytes=shared, seconds=MOST_SECONDS)


_NEAREST = re.compile(r'\bNEAREST\((-?0x1\.[0-9a-f]{13}p[+-][0-9]{1,4}), "(-?[0-9]{1,4000}(?:/[1-9][0-9]{0,3999})?)"\)')
_DEFINED = re.compile(r"#define NEAREST\(number, exact\) Real\((?:number|exact)\)")


def check_constants(program: BuiltProgram) -> None:
    """Refuse a source (E623) in which such a constant is not the nearest number, because the run over a field reads only the rational."""
    computed = COMPILED[program.dtype].arithmetic.name
    for kernel in program.kernels:
        for number, exact in _NEAREST.findall(kernel.source):
            if float.fromhex(number) != nearest(Fraction(exact), computed):
                raise fail("E623", f"{kernel.path} has the constant {number}, which is not the one nearest to {exact[:40]}", AGAIN)
        if kernel.source.count("NEAREST") != sum(len(found.findall(kernel.source)) for found in (_NEAREST, _DEFINED)):
            raise fail("E623", f"{kernel.path} has a constant that cannot be read", AGAIN)
