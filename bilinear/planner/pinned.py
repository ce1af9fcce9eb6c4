"""Plans that do not weigh all ways: of algorithms, or of products of digits, that are requested by name, and of complex matrices.

Complex matrices: three real products by some levels, beside the library's multiply, which does the arithmetic of four real products, and is
taken to do it at its rate for real ones. A way's time is that of its own schedule for real and imaginary parts, by the model of
`planner.model`; only the fastest ways of the real product are weighed. Descriptions have no rates of complex types.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from bilinear.errors import fail
from bilinear.ir.element import COMPLEX, Element
from bilinear.ir.placement import COLOURS, MOST_LEVELS
from bilinear.planner.choose import Weighing, hashes_of, make_plan, too_inaccurate, why_inaccurate, with_errors
from bilinear.planner.device import Device
from bilinear.planner.model import fastest_tile
from bilinear.planner.plan import Candidate, Methods, Plan
from bilinear.planner.problem import Problem
from bilinear.planner.profiles import outline
from bilinear.planner.scheduled import Scheduled
from bilinear.planner.ways import OF_PARTS, Way, algorithm_named, authored, forget_changed_files, full_names, lowered, require_sound
from bilinear.resources import implementation_sha256

MOST_WEIGHED = 3  # The most ways of the real product that are weighed, the fastest first.
PRODUCTS = 4  # The real products in the library's arithmetic.
SHORT_SHARE = 1 / 2  # Of the library's time, which products of digits must undercut where an extent is below `least_complex`.
LEAST_SHARE = 1 / 3  # Of the library's time: three real products take more, each at least half of the library's for a real product.
PLAIN = Candidate(Scheduled(("classical",)))
"""Three products of the plain kernel, which the real product does not weigh where the library is faster."""


@dataclass(frozen=True)
class _ComplexWeighing:
    """Candidates of one problem on one device."""

    methods: Methods
    problem: Problem
    device: Device
    explain: bool

    @property
    def part(self) -> Element:
        return COMPLEX[self.problem.dtype]

    @property
    def real_problem(self) -> Problem:
        """The product of parts, without limits."""
        return replace(self.problem, dtype=self.part.name, inputs="preserve", workspace=None, accuracy=None)

    def candidates(self) -> Iterator[Candidate]:
        real, undigited = self.real_problem, replace(self.device, digits=())  # products of digits would end the search early
        library = Weighing(real, undigited, False, self.methods).library()
        yield self.judged(replace(library, ms=PRODUCTS * (library.ms or 0.0), why=""), self.explain)
        own = [found for method in self.methods for found in method.candidates(self.problem, self.device, self.budget, inf)]
        own = [self.judged(found, self.explain or self.problem.accuracy is not None) for found in own]
        if min(real.m, real.k, real.n) < self.device.policy.least_complex:
            # One call fills the chip as a real one of twice the terms and columns does.
            whole = Weighing(replace(real, k=2 * real.k, n=2 * real.n), undigited, False, self.methods).library()
            yield from (found for found in own if (found.ms or inf) < SHORT_SHARE * (whole.ms or 0.0))
            return
        yield from own
        if not self.explain and any((found.ms or inf) < LEAST_SHARE * PRODUCTS * (library.ms or 0.0) and not found.why for found in own):
            return
        plan = make_plan(self.methods, real, undigited)
        ways = [c for c in plan.candidates if len(c.choice.lowered_parts) == 1 and c.ms is not None and c.promise == "preserve"]
        ways = sorted(ways, key=lambda c: c.ms or 0.0)[:MOST_WEIGHED]
        yield self.weighed(next((way for way in ways if way.levels == PLAIN.levels), PLAIN))
        for way in (way for way in ways if way.levels != PLAIN.levels):
            found = self.weighed(way)
            yield found
            if not (found.why or self.explain):  # others are hardly faster
                return

    def weighed(self, way: Candidate) -> Candidate:
        from bilinear.analysis.accuracy import PROBABLE

        p, of_parts = self.problem, Way(way.levels, OF_PARTS)
        own = outline(of_parts)
        placement = own.placed(p, self.part.bytes)
        if not placement.core[0]:
            return replace(way, ms=None, why="blocks are too small")
        seconds, tile = fastest_tile(own.profile, placement, self.part.name, self.device)
        needed = placement.workspace_elements * self.part.bytes
        found = Candidate(Scheduled(way.levels, strategy=way.strategy, tile=tile), seconds * 1e3, needed)
        return self.judged(found, self.explain, PROBABLE, p.accumulate and lowered(of_parts)[0].overwrites)

    def judged(self, found: Candidate, explain: bool, times: float = 1.0, overwrites: bool = False) -> Candidate:
        """A candidate with its errors where they are asked for, the probable one so many `times` as large; and why it may not run."""
        found = with_errors(found, self.problem, explain)
        found = replace(found, probable=None if found.probable is None else found.probable * times)
        why = "overwrites C" if overwrites else why_inaccurate(found, self.problem.accuracy)
        if (found.workspace or 0) > self.budget:
            why = f"needs {found.workspace} bytes of workspace, {self.budget} are allowed or left on the device"
        return replace(found, why=why)

    @property
    def budget(self) -> int:
        return self.problem.budget_in(self.device.memory * self.device.memory_share)


def library_of_complex(methods: Methods, problem: Problem, device: Device) -> Candidate:
    """The library's multiply of complex matrices, with its errors."""
    return next(_ComplexWeighing(methods, problem, device, True).candidates())


def pinned_complex_plan(methods: Methods, problem: Problem, device: Device, levels: tuple[str, ...]) -> Plan:
    """The plan of three real products by these levels, whatever the model says of it.

    Raises `BilinearError`: E408 and E501 for levels that cannot run, E543 for what does not keep the problem's limits, E785 for promises
    that write A and B.
    """
    from bilinear.lowering.prepare import Level, prepare_complex

    if problem.inputs != "preserve":
        what = f"inputs={problem.inputs!r} lets a schedule write A and B, and complex operands are only read"
        raise fail("E785", what, "use inputs='preserve'")
    prepare_complex(tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, levels)))
    weighing = _ComplexWeighing(methods, problem, device, True)
    real = weighing.real_problem
    way = Weighing(real, device, explain=False, named=True).figures(Way(levels))
    found, library = weighing.weighed(replace(way, why="")), library_of_complex(methods, problem, device)
    return _asked_for(problem, device, found, library)


def complex_plan(methods: Methods, problem: Problem, device: Device, explain: bool = False) -> Plan:
    """The plan for complex matrices. Raises `BilinearError` (E519) if nothing is as accurate, not even the library's multiply."""
    library, *ways = _ComplexWeighing(methods, problem, device, explain).candidates()
    able = sorted((c for c in ways if not c.why), key=lambda c: c.ms or 0.0)

    margins = ((c, 1 + c.choice.least_gain_complex(device.policy)) for c in able)
    chosen = next((c for c, margin in margins if library.why or (library.ms or 0.0) > margin * (c.ms or 0.0)), library)
    if chosen is library and library.why:
        raise too_inaccurate(library.why)
    gain = (library.ms or 0.0) / (chosen.ms or 1.0)
    why = "chosen: no plan gains the margin" if chosen is library else f"chosen: {gain:.2f} times as fast as the library, by the model"
    others = [c for c in (library, *able) if c is not chosen]
    off = []
    for c in others:
        slower = (c.ms or 0.0) / (chosen.ms or 1.0) - 1
        told = f"{abs(slower):.1%} {'slower' if slower >= 0 else 'faster, which is within the error of the model'}"
        off.append(replace(c, why=c.why or told, able=not c.why))
    refused = [replace(c, able=False) for c in ways if c.why]
    return Plan(problem, device.title, (replace(chosen, why=why), *off, *refused), hashes_of(chosen), implementation_sha256())


def pinned_plan(
    methods: Methods, problem: Problem, device: Device, levels: tuple[str, ...], products: str | None = None, contention: str = COLOURS
) -> Plan:
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
        if unknown and unknown[0] and Path(unknown[0]).is_dir():
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
    prepare_levels(tuple(Level(x.scheme, x.schedule) for x in map(algorithm_named, levels)), problem.inputs, contention=contention)
    require_sound(levels, problem.dtype)
    writes = any(authored(name, problem.inputs).writes_operands for name in levels)
    way = Way(levels, problem.inputs if writes else "preserve", contention)
    weighed = Weighing(problem, device, explain=True, named=True)
    found = weighed.figures(way)
    if problem.accumulate and "recurse" in outline(way).strategies:
        found = replace(found, why=found.why or "it overwrites C, and the product is to be added to it")
    return _asked_for(problem, device, found, weighed.library())


def _pinned_products(methods: Methods, problem: Problem, device: Device, levels: tuple[str, ...], products: str) -> Plan:
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
    return _asked_for(problem, device, found, library)


def _asked_for(problem: Problem, device: Device, found: Candidate, library: Candidate) -> Plan:
    """The plan of what is asked for, beside the library's multiply; refused (E543) if it may not run."""
    if found.why:
        raise fail("E543", f"{found.name}: {found.why}", "allow more, or choose other levels")
    speed = "no time is known" if found.ms is None else f"{(library.ms or 0.0) / found.ms:.2f} times as fast as the library"
    first = replace(found, why=f"asked for: {speed}")
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
