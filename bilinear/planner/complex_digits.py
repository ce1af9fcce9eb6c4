"""Products of digits for complex matrices: three products of digits of sums of parts, by the levels that are asked for.

`auto` does not weigh them, for no times are known. Errors are those of each part, in units of the largest parts of A and B.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from bilinear.errors import fail
from bilinear.ir.digit_kernel import MOST_BLOCKS
from bilinear.ir.element import COMPLEX
from bilinear.ir.residue_tile import RESIDUE_TILES
from bilinear.ir.tile import DIGIT_TILES
from bilinear.planner.accuracy import certain_error, relative_error, why_inaccurate
from bilinear.planner.choose import hashes_of
from bilinear.planner.complex_plans import library_of_complex
from bilinear.planner.device import Device
from bilinear.planner.digit_geometry import geometry_of
from bilinear.planner.digits import element_of, products_of
from bilinear.planner.plan import DIGITS, Candidate, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.residues import RESIDUES, require_residues, residues_for
from bilinear.planner.ways import follows_from_names
from bilinear.resources import implementation_sha256

if TYPE_CHECKING:  # readers are imported lazily: most plans need none
    from bilinear.ir.complex_scheme import ComplexScheme


@lru_cache(maxsize=64)
def complex_scheme_of(levels: tuple[str, ...]) -> ComplexScheme:
    """Three real products by levels of shipped algorithms. Raises as `scheme_of` does, which counts both parts of a block."""
    from bilinear.algebra.complex_products import complex_scheme
    from bilinear.planner.digits import scheme_of

    found = complex_scheme(scheme_of(levels))
    most = max(found.u.inputs, found.v.inputs, len(found.w.outputs))
    if most > MOST_BLOCKS:
        message = f"below these levels a complex matrix is cut into {most} parts of blocks"
        raise fail("E501", message, f"at most {MOST_BLOCKS} are read at once: name fewer levels")
    return found


follows_from_names(complex_scheme_of.cache_clear)


def pinned_complex(problem: Problem, device: Device, levels: tuple[str, ...], products: str) -> Plan:
    """The plan that multiplies complex matrices by these products of digits below these levels.

    Raises `BilinearError`: E787 for products that do not stand for this type, E543 for what does not fit the problem's limits, E501 for too
    many blocks, E567, E591 and E592 as residues of real matrices do.
    """
    found, library = _candidate(problem, levels, products), library_of_complex(problem, device)
    why = why_inaccurate(found, problem.accuracy)
    if problem.workspace is not None and (found.workspace or 0) > problem.workspace:
        why = f"needs {found.workspace} bytes of workspace, {problem.workspace} are allowed"
    if why:
        raise fail("E543", f"{found.name}: {why}", "allow more, or choose other levels")
    first = replace(found, why="asked for: no time is known")
    return Plan(problem, device.title, (first, library), hashes_of(found), implementation_sha256())


def _candidate(problem: Problem, levels: tuple[str, ...], products: str) -> Candidate:
    part = COMPLEX[problem.dtype]
    name = residues_for(problem) if products == RESIDUES else products
    if name not in (*DIGIT_TILES, *RESIDUE_TILES) or element_of(name) is not part:
        what = f"products {products!r} do not multiply {problem.dtype}"
        raise fail("E787", what, f"choose from {', '.join((*products_of(part.name), RESIDUES))}")
    scheme = complex_scheme_of(levels)
    if name in RESIDUE_TILES:
        from bilinear.analysis.residue_bounds import room_of
        from bilinear.ir.digits import residues_of

        tile = RESIDUE_TILES[name]
        room_of(residues_of(tile.of, tile.count), 2 * problem.k)
        require_residues(scheme, tile)
    m, n = (problem.n, problem.m) if "C" in problem.column_major else (problem.m, problem.n)
    needed = geometry_of(levels, (m, problem.k, n), name, is_complex=True).places[-1]
    found = Candidate(levels, "preserve", DIGITS, None, needed, tile=name)
    certain, probable = (error(found, problem.k, problem.dtype) for error in (certain_error, relative_error))
    return replace(found, error=certain, probable=probable)
