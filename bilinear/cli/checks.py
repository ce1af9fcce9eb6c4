"""Checks on real input: their table, and the error if one fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bilinear.errors import BilinearError, Diagnostic

if TYPE_CHECKING:
    from bilinear.frontend import Loaded
    from bilinear.ir.measurement import LeftOut
    from bilinear.measure.bench_modulo import ModularTime
    from bilinear.measure.check_modulo import ModularCheck
    from bilinear.measure.check_multiply import Check, Device


def run_checks(
    loaded: Loaded,
    shape: tuple[int, int, int],
    dtypes: Sequence[str],
    levels: int,
    inputs: str,
    on: Sequence[Device],
    progress: Callable[[str, int, int], None],
    what: str = "checking",
    tolerance: float | None = None,
) -> list[Check]:
    """One check for each device and element type."""
    from bilinear.measure.check_multiply import check

    checks = []
    for device in on:
        for number, dtype in enumerate(dtypes):
            progress(f"{what} on the {device}", number, len(dtypes))
            checks.append(check(loaded, shape, dtype, levels, inputs, device, tolerance=tolerance))
    return checks


def check_table(checks: list[Check]) -> str:
    """The checks as an aligned table."""
    from bilinear.reporting.table import aligned

    rows = [
        (
            c.device,
            "x".join(map(str, c.shape)),
            c.dtype,
            c.levels,
            c.inputs,
            "-" if c.exact is None else "yes" if c.exact else "NO",
            f"{c.error:.2e}",
            f"{c.allowance:.2e}",
            f"{c.drift:.1e}" if c.inputs == "restore" else "-",
            c.workspace_bytes,
            f"{c.seconds * 1e3:.3f}",
            f"{c.library_seconds * 1e3:.3f}",
        )
        for c in checks
    ]
    trust = ("integers exact", "error", "allowed", "drift")
    header = ("device", "shape", "dtype", "levels", "inputs", *trust, "workspace B", "ms", "library ms")
    return "\n".join(aligned(rows, header))


def modular_table(checks: Sequence[ModularCheck]) -> str:
    """Checks modulo p as an aligned table."""
    from bilinear.reporting.table import aligned

    rows = []
    for check in checks:
        what = check.device, "x".join(map(str, check.shape)), check.modulus, check.levels, check.inputs
        trust = "yes" if check.exact else "NO", "yes" if check.restored else "NO"
        rows.append((*what, *trust, f"{check.seconds * 1e3:.3f}", f"{check.classical_seconds * 1e3:.3f}"))
    header = ("device", "shape", "modulus", "levels", "inputs", "exact", "inputs as promised", "ms", "classical ms")
    return "\n".join(aligned(rows, header))


def modular_times(rows: Sequence[ModularTime], left_out: Sequence[LeftOut]) -> str:
    """Times of products modulo p as an aligned table, and below it what was left out."""
    from bilinear.reporting.table import aligned

    header = ("shape", "modulus", "algorithm", "ms", "TOP/s", "float64 products", "ms", "ratio", "exact")
    cells = []
    for row in rows:
        figures = f"{row.ms:.3f}", f"{row.rate:.1f}", row.pieces, f"{row.pieces_ms:.3f}", f"{row.ratio:.2f}"
        cells.append(("x".join(map(str, row.shape)), row.modulus, row.asked, *figures, "yes" if row.exact else "NO"))
    return "\n".join([*(aligned(cells, header) if cells else ()), *(f"left out: {one.what}: {one.why}" for one in left_out)])


def require_exact(check: ModularCheck) -> None:
    """Raise `BilinearError` (E701) for a check modulo p that failed."""
    if not check.passed:
        what = "the inputs are not as promised" if check.exact else "the result is wrong"
        raise BilinearError(Diagnostic("E701", f"the product modulo {check.modulus} failed its check", notes=(what,)))


def require(checks: list[Check]) -> None:
    """Raise `BilinearError` (E701) for every check that failed."""
    wrong = [c for c in checks if not c.passed]
    if wrong:
        raise BilinearError(Diagnostic("E701", f"{c.dtype} on the {c.device} failed its check", notes=_findings(c)) for c in wrong)


def _findings(check: Check) -> tuple[str, ...]:
    """The measurements, and the checks that failed."""
    integers = ("integers do not come out exactly",) if check.exact is False else ()
    return (
        f"error {check.error:.3e}, allowed {check.allowance:.3e}",
        *integers,
        f"inputs drift by {check.drift:.3e} of their largest element",
    )
