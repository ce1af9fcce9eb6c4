"""Reports of what is proved, of what is refused, and of names that nobody should choose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from bilinear.analysis.accuracy import accuracy_facts, levels_kept
from bilinear.errors import BilinearError, Diagnostic
from bilinear.frontend import Loaded, load, parse_source
from bilinear.ir.linear import LinearMap, form
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.facts import KernelLine
from bilinear.reporting.report import Report, make_report, proof_report
from bilinear.resources import algorithms_folder
from bilinear.source import Source
from bilinear.verify.schedule import prove_schedule
from bilinear.verify.scheme import prove_scheme

ALGORITHMS = ("hopcroft_kerr", "laderman", "msmes", "naive2x2", "strassen", "winograd")
KERNELS = (
    KernelLine("product", "sm_90", 256, 128, 49152, 0, (2, 0.25, "registers"), 20480, False),
    KernelLine("product", "sm_80", 128, 168, 65536, 68, (2, 0.125, "shared memory"), 20480, False),
    KernelLine("product", "compute_90", 256, None, None, None, None, 9000, True),
)


@cache
def proved(name: str) -> Report:
    """The full report of a shipped algorithm, with accuracy and kernels."""
    loaded = load(name)
    inputs = natural_inputs(loaded.schedule)
    prepared = prepare(loaded.scheme, loaded.schedule, 1, inputs)
    schedules = [prepare(loaded.scheme, loaded.schedule, levels, inputs).schedule for levels in ((1, 2, 3) if inputs != "preserve" else ())]
    accuracy = accuracy_facts(loaded.scheme, schedules, 4096, ("float64", "float32"))
    kept = levels_kept(loaded.scheme, accuracy, 1e-2, 3, bool(schedules))
    return replace(make_report(loaded, prepared, inputs, (), accuracy, kept), kernels=KERNELS)


def alone(name: str) -> Report:
    """The report of a shipped scheme without any schedule."""
    loaded = load(name)
    return proof_report(loaded, prove_scheme(loaded.scheme))


def of_scheme(scheme: Scheme, diagnostics: tuple[Diagnostic, ...] = ()) -> Report:
    """The report of a scheme that was made here."""
    return proof_report(Loaded(scheme, None, Source("here.bl", ""), Path("here.bl")), prove_scheme(scheme), None, diagnostics)


@cache
def refused_scheme() -> Report:
    """Strassen's scheme with a sign of M6 dropped: A11 + A21 for A21 - A11."""
    text = (algorithms_folder() / "strassen.bl").read_text().replace("M6:  -1", "M6:   1")
    (scheme,) = parse_source(Source("strassen.bl", text)).schemes
    try:
        prove_scheme(scheme).require()
    except BilinearError as error:
        return of_scheme(scheme, error.diagnostics)
    raise AssertionError("the scheme must be wrong")


@cache
def refused_schedule() -> Report:
    """The in-place schedule with a sign of its last stage turned round, so that A12 ends as A12 - 2 A22."""
    loaded = load("msmes")
    text = loaded.source.text.replace("A12 += A22 ; B12 -= B11", "A12 -= A22 ; B12 -= B11")
    (schedule,) = parse_source(Source(str(loaded.path), text)).schedules
    wrong = replace(loaded, schedule=schedule)
    return proof_report(wrong, prove_scheme(loaded.scheme), prove_schedule(mark_first_writes(schedule), loaded.scheme))


def hostile() -> Report:
    """Names and texts that would do harm where they are not escaped."""
    scheme = load("strassen").scheme
    bad = "</title></style><script>alert(1)</script>"
    named = replace(
        scheme,
        name=bad,
        citation="\"><img src=http://example.org/x onerror='alert(1)'> | `code` | $(x)",
        products=tuple(f"<b>{product}</b>|'\"&" for product in scheme.products),
    )
    finding = Diagnostic("E999", bad, None, notes=("<script src=//x>",), hints=("<iframe>",))
    return of_scheme(named, (finding,))


def huge(levels: int) -> Scheme:
    """Strassen's scheme multiplied with itself."""
    strassen = load("strassen").scheme
    product = strassen
    for _ in range(levels - 1):
        product = _tensor(product, strassen)
    return product


def _tensor(p: Scheme, q: Scheme) -> Scheme:
    """The Kronecker product of two schemes, blocks row by row."""
    rank = p.rank * q.rank

    def place(i: int, j: int, columns: int, rows: int, inner: int) -> int:
        return ((i // columns) * rows + j // inner) * columns * inner + (i % columns) * inner + j % inner

    def factors(one: LinearMap, two: LinearMap, columns: int, rows: int, inner: int) -> LinearMap:
        outputs = (form((place(i, j, columns, rows, inner), c * d) for i, c in a for j, d in b) for a in one.matrix for b in two.matrix)
        return LinearMap(one.inputs * two.inputs, tuple(outputs))

    w = {
        place(i, j, p.n, q.m, q.n): form((a * q.rank + b, c * d) for a, c in p.w.matrix[i] for b, d in q.w.matrix[j])
        for i in range(p.m * p.n)
        for j in range(q.m * q.n)
    }
    return Scheme(
        f"{p.name}-{q.name}",
        p.m * q.m,
        p.k * q.k,
        p.n * q.n,
        factors(p.u, q.u, p.k, q.m, q.k),
        factors(p.v, q.v, p.n, q.k, q.n),
        LinearMap(rank, tuple(w[i] for i in sorted(w))),
        tuple(f"M{i + 1}" for i in range(rank)),
    )
