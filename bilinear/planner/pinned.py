"""Plans of algorithms, or of products of digits, that are requested by name. The model decides nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX
from bilinear.ir.placement import MOST_LEVELS
from bilinear.planner.accuracy import why_inaccurate, with_errors
from bilinear.planner.choose import Weighing, hashes_of
from bilinear.planner.complex_plans import library_of_complex, pinned_complex_plan
from bilinear.planner.device import Device
from bilinear.planner.plan import Candidate, Methods, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.ways import Way, algorithm_named, authored, forget_changed_files, full_names, require_sound
from bilinear.resources import implementation_sha256


def pinned_plan(methods: Methods, problem: Problem, device: Device, levels: tuple[str, ...], products: str | None = None) -> Plan:
    """The plan that runs these algorithms, the outermost level first, whatever time the model predicts.

    A level is a shipped algorithm, one of the user's own, or a file `FILE.bl`. With `products`, a name of one of the `methods`, there may
    be no level.

    Raises `BilinearError`: E543 for other names and for levels that do not fit the problem's limits, E408 for levels that cannot stand
    below each other, E501 for too many products, E528 for coefficients that the type cannot hold, E785 for promises that write complex
    operands, E787 for products that do not multiply a complex type.
    """
    from bilinear.frontend.algorithms import is_file_name
    from bilinear.frontend.files import own, shipped
    from bilinear.lowering.prepare import Level, prepare_levels

    forget_changed_files()
    known = own() | shipped()
    unknown = [name for name in levels if not is_file_name(name) and name not in known]
    if unknown or not (levels or products):
        what = f"{unknown[0]!r} is neither a shipped algorithm nor one of your own" if unknown else "no level is named"
        if unknown and Path(unknown[0]).is_dir():
            what = f"{unknown[0]!r} is a folder, and a level is one algorithm"
            raise fail("E543", what, "name a file in it; after `bilinear add FILE.bl`, `auto` weighs it, too")
        raise fail("E543", what, f"choose from {', '.join(known)}", "or give a file: mine.bl")
    levels = full_names(levels)
    if len(levels) > MOST_LEVELS:
        raise fail("E543", f"{len(levels)} levels are more than a plan has", f"name at most {MOST_LEVELS}")
    if products is not None:
        require_sound(levels, problem.dtype)
        return _pinned_products(methods, problem, device, levels, products)
    if problem.dtype in COMPLEX:
        require_sound(levels, problem.dtype)
        return pinned_complex_plan(methods, problem, device, levels)
    prepare_levels(tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, levels)), problem.inputs)
    require_sound(levels, problem.dtype)
    writes = any(authored(name, problem.inputs).writes_operands for name in levels)
    way, weighed = Way(levels, problem.inputs if writes else "preserve"), Weighing(problem, device, explain=True, named=True)
    found = weighed.figures(way)
    if found.why:
        raise fail("E543", f"{found.name}: {found.why}", "allow more, or choose other levels")
    if problem.accumulate and "recurse" in outline(way).strategies:
        raise fail("E543", f"{found.name}: it overwrites C, and the product is to be added to it", "choose other levels")
    library = weighed.library()
    first = replace(found, why=f"asked for: {(library.ms or 0.0) / (found.ms or 1.0):.2f} times as fast as the library")
    return Plan(problem, device.title, (first, library), outline(way).sha256, implementation_sha256())


def _pinned_products(methods: Methods, problem: Problem, device: Device, levels: tuple[str, ...], products: str) -> Plan:
    """The plan of what one of the methods calls by this name."""
    if problem.dtype in COMPLEX:
        found = with_errors(_named(methods, problem, device, levels, products, 0), problem, True)
        library = library_of_complex(methods, problem, device)
        why = why_inaccurate(found, problem.accuracy)
        if problem.workspace is not None and (found.workspace or 0) > problem.workspace:
            why = f"needs {found.workspace} bytes of workspace, {problem.workspace} are allowed"
        found = replace(found, why=why)
    else:
        weighed = Weighing(problem, device, explain=True, named=True)
        found, library = weighed.judged(_named(methods, problem, device, levels, products, weighed.budget)), weighed.library()
    if found.why:
        raise fail("E543", f"{found.name}: {found.why}", "allow more, or choose other levels")
    first = replace(found, why=f"asked for: {_speed(found, library)}")
    return Plan(problem, device.title, (first, library), hashes_of(found), implementation_sha256())


def _named(methods: Methods, problem: Problem, device: Device, levels: tuple[str, ...], products: str, budget: int) -> Candidate:
    """The candidate of the method that has products of this name; refused if none has (E543), or none of a complex type (E787)."""
    known = [name for method in methods for name in method.products]
    if problem.dtype in COMPLEX:
        known = [name for method in methods for name in method.products_of(problem.dtype)]
        if products not in known:
            raise fail("E787", f"products {products!r} do not multiply {problem.dtype}", f"choose from {', '.join(known)}")
    method = next((method for method in methods if products in method.products), None)
    if method is None:
        raise fail("E543", f"there are no products {products!r}", f"choose from {', '.join(known)}")
    return method.named(problem, device, levels, products, budget)


def _speed(found: Candidate, library: Candidate) -> str:
    return "no time is known" if found.ms is None else f"{(library.ms or 0.0) / found.ms:.2f} times as fast as the library"
