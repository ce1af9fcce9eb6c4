"""The facts of a verification report: about a scheme, about its schedules as written and once lowered, and what all views show of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, zip_longest

from bilinear.analysis.accuracy import growth_factor
from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.frontend.printer import scaled_product, signed_sum, update_text
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, exact, generator, is_negative
from bilinear.ir.schedule import (
    ALPHA,
    AnySchedule,
    Block,
    BlockMap,
    LinearStage,
    Product,
    ProductStage,
    ScaledSchedule,
    ScaledTarget,
    Schedule,
    Stage,
    Target,
)
from bilinear.ir.scheme import Scheme, block_names, exponent_of
from bilinear.lowering.place import place_schedule
from bilinear.verify.facts import BlockState, OperandFate, ScheduleCosts, ShapeConditions, StageFact, told
from bilinear.verify.schedule import ScheduleProof
from bilinear.verify.scheme import SchemeProof

Entries = tuple[tuple[int, str], ...]  # A sparse row: (column from 0, exact coefficient as text).


@dataclass(frozen=True)
class ExpandedTables:
    """The coefficient tables with changes of basis and sub-expressions expanded.

    `u` has a row for each product over the blocks `a`, `v` one over the blocks `b`; `w` one for each of `c` over the products.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    c: tuple[str, ...]
    products: tuple[str, ...]
    u: tuple[Entries, ...]
    v: tuple[Entries, ...]
    w: tuple[Entries, ...]


@dataclass(frozen=True)
class SharedSums:
    """U, V or W as written: steps over the inputs (from 0) and earlier steps (from the number of inputs), with their names; and outputs."""

    inputs: int
    names: tuple[str, ...]
    steps: tuple[Entries, ...]
    outputs: tuple[Entries, ...]


@dataclass(frozen=True)
class ProductLine:
    """One product as an equation: its factors, and the blocks of C that it is added to, with coefficients."""

    name: str
    left: str
    right: str
    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FailingEquation:
    """A Brent equation that does not hold: the coefficient of `left` * `right` in `output`."""

    left: str
    right: str
    output: str
    found: str
    needed: str


@dataclass(frozen=True)
class SchemeFacts:
    """The proved and known facts about the scheme.

    `ring` is the ring of the decision, `valid_over` the rings over which it holds as written. `order` is the order of the error in lambda
    and `degree` the largest power of 1/lambda (None for exact schemes). `additions` are block additions on A, B and C as written; `growth`
    is the norm-wise growth factor of one level, empty if a coefficient is not real. `bases` and `subexpressions` are equations as written;
    `shared` holds U, V and W with these sums, if there are any and no bases. `failing` is empty if the scheme is proved; `complete` is
    false if the search for more ended early.
    """

    name: str
    format: str
    ring: str
    valid_over: tuple[str, ...]
    order: int | None
    degree: int | None
    citation: str
    equations: int
    failing: tuple[FailingEquation, ...]
    complete: bool
    additions: tuple[int, int, int]
    scalings: int
    exponent: float
    growth: str
    bases: tuple[str, ...]
    subexpressions: tuple[str, ...]
    shared: tuple[SharedSums, ...]
    products: tuple[ProductLine, ...]
    tables: ExpandedTables
    sha256: str


def scheme_facts(scheme: Scheme, proof: SchemeProof) -> SchemeFacts:
    """The facts of a scheme and its proof, which may have failed."""
    maps: tuple[LinearMap, ...] = (scheme.u, scheme.v, scheme.w)
    u, v, w = (tuple(tuple((i, str(c)) for i, c in row) for row in table) for table in scheme.tables)
    a, b, c = block_names("A", scheme.m, scheme.k), block_names("B", scheme.k, scheme.n), block_names("C", scheme.m, scheme.n)
    tables = ExpandedTables(a, b, c, scheme.products, u, v, w)
    failing = tuple(FailingEquation(e.left, e.right, e.output, told(e.found), str(e.needed)) for e in proof.failures)
    return SchemeFacts(
        name=scheme.name,
        format=scheme.format,
        ring=str(scheme.ring),
        valid_over=proof.valid_over,
        order=proof.order,
        degree=proof.degree,
        citation=scheme.citation,
        equations=proof.equations,
        failing=failing,
        complete=proof.complete,
        additions=(scheme.u.additions, scheme.v.additions, scheme.w.additions),
        scalings=sum(linear.scalings for linear in maps),
        exponent=exponent_of(scheme.m, scheme.k, scheme.n, scheme.rank),
        growth=_growth(scheme),
        bases=tuple(_basis_lines(scheme, tables)),
        subexpressions=tuple(_subexpressions(scheme, tables)),
        shared=_shared(scheme) if scheme.bases is None and any(linear.steps for linear in maps) else (),
        products=_product_lines(scheme, tables),
        tables=tables,
        sha256=scheme_hash(scheme),
    )


def written_sum(terms: Iterable[tuple[Coefficient, str]]) -> str:
    """A linear form in the names of its values: `A11 - 2 A12 + (1+sqrt(3)) A21`."""
    text = ""
    for coefficient, name in terms:
        negative = is_negative(coefficient)
        size = -coefficient if negative else coefficient
        factor = "" if size == 1 else f"({size}) " if isinstance(size, Symbolic) and len(size.terms) > 1 else f"{size} "
        text += (" - " if negative else " + ") if text else "-" * negative
        text += factor + name
    return text or "0"


SUPERSCRIPT = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def readable(text: str) -> str:
    """A coefficient or form in typographic signs: a true minus, roots, Greek letters."""
    text = re.sub(r"sqrt\(([0-9]+)\)", r"√\1", text).replace("sqrt", "√")
    for plain, printed in (("-", "−"), ("*", "·"), ("lambda", "λ"), ("alpha", "α"), ("beta", "β")):
        text = text.replace(plain, printed)
    text = re.sub(r"λ\^(−?[0-9]+)", lambda power: "λ" + power[1].translate(SUPERSCRIPT), text)
    return re.sub(r"\[([αβλ])\]|\(([αβλ][⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*)\)", r"\1\2", text)


def _growth(scheme: Scheme) -> str:
    if scheme.ring.modulus or scheme.ring.is_approximate:
        return ""
    try:
        growth = growth_factor(scheme)
    except ValueError:
        return ""
    return f"{growth:.6g}" if isinstance(growth, float) else str(growth)


def _product_lines(scheme: Scheme, tables: ExpandedTables) -> tuple[ProductLine, ...]:
    u, v, w = scheme.tables
    targets: list[list[tuple[str, str]]] = [[] for _ in scheme.products]
    for block, row in zip(tables.c, w, strict=True):
        for product, coefficient in row:
            targets[product].append((block, str(coefficient)))
    rows = zip(scheme.products, u, v, targets, strict=True)
    return tuple(ProductLine(name, form_text(a, tables.a), form_text(b, tables.b), tuple(to)) for name, a, b, to in rows)


def form_text(row: Form, names: Sequence[str]) -> str:
    """A linear form in the names of its values."""
    return written_sum((coefficient, names[index]) for index, coefficient in row)


def _step_names(linear: LinearMap, letter: str) -> tuple[str, ...]:
    return tuple(name or f"{letter}{number}" for number, (name, _) in enumerate(zip_longest(linear.names, linear.steps), 1))


def _subexpressions(scheme: Scheme, tables: ExpandedTables) -> Iterable[str]:
    for linear, letter, inputs in ((scheme.u, "S", tables.a), (scheme.v, "T", tables.b), (scheme.w, "U", tables.products)):
        own = _step_names(linear, letter)
        yield from (f"{name} = {form_text(step, (*inputs, *own))}" for name, step in zip(own, linear.steps, strict=True))


def _shared(scheme: Scheme) -> tuple[SharedSums, ...]:
    found = []
    for linear, letter in ((scheme.u, "S"), (scheme.v, "T"), (scheme.w, "U")):
        steps, outputs = (tuple(tuple((i, str(c)) for i, c in row) for row in rows) for rows in (linear.steps, linear.outputs))
        found.append(SharedSums(linear.inputs, _step_names(linear, letter), steps, outputs))
    return tuple(found)


def _basis_lines(scheme: Scheme, tables: ExpandedTables) -> Iterable[str]:
    if scheme.bases is None:
        return
    changes = ((scheme.bases.a, tables.a, tables.a), (scheme.bases.b, tables.b, tables.b), (scheme.bases.c, tables.c, tables.c))
    for change, inputs, outputs in changes:
        for number, row in enumerate(change.matrix):
            if row != ((number, 1),):
                name = outputs[number] if len(change.matrix) == len(outputs) else f"{outputs[0][0]}'{number + 1}"
                names = inputs if change.inputs == len(inputs) else [f"{outputs[0][0]}'{i + 1}" for i in range(change.inputs)]
                yield f"{name} <- {form_text(row, names)}"


Content = dict[str, Coefficient]  # Coefficients by the name of a product, or of an original block.
MOST_PRODUCTS = 200  # Schedules with more products have no texts.
MOST_TERMS = 12  # Sums of so many original blocks are written out in the proof; longer ones here.


def product_sums(schedule: AnySchedule, names: Sequence[Sequence[str]], implied: bool) -> list[dict[str, str]]:
    """After each stage, the text of every block that holds products, or a long sum; `names` are those of the products, stage by stage.

    If the scaling is `implied`, or equal to the implied one, alpha, beta and the old C are left out. Very large schedules give no texts.
    """
    if sum(map(len, names)) > MOST_PRODUCTS:
        return [{} for _ in schedule.stages]
    products = {name for stage in names for name in stage}
    left_out = "C" if implied else ""
    alpha = implied and not isinstance(schedule, Schedule) and schedule.result.alpha == ALPHA
    originals = [block for space in schedule.spaces[:3] for block in space.blocks]
    state: dict[Block, Content] = {block: {} if block.space == left_out else {str(block): 1} for block in originals}
    after = []
    for stage, stage_names in zip(schedule.stages, names, strict=True):
        state = {**state, **_after(stage, stage_names, state, generator("alpha", -1) if alpha else 1)}
        held = {str(block): content for block, content in state.items() if len(content) > MOST_TERMS or not products.isdisjoint(content)}
        in_order = {block: sorted(content.items(), key=lambda term: (len(term[0]), term[0])) for block, content in held.items()}
        after.append({block: written_sum((c, name) for name, c in terms) for block, terms in in_order.items()})  # M2 before M10
    return after


def _after(stage: Stage, names: Sequence[str], state: dict[Block, Content], factor: Coefficient) -> dict[Block, Content]:
    """The blocks that a stage writes, with their contents; every step reads the values from before. Products are scaled by a `factor`."""
    new: dict[Block, Content] = {}
    if isinstance(stage, LinearStage):
        for block_map in stage.maps:
            for block, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
                new[block] = _sum([(state.get(block, {}), kept), *((state.get(block_map.sources[i], {}), c) for i, c in row)])
        return new
    for product, name in zip(stage.products, names, strict=True):
        for target in product.targets:
            block = target.block
            others = [(state.get(other, {}), c) for other, c in target.plus]
            held = new.get(block, state.get(block, {}))
            new[block] = _sum([(held, target.kept), *others, ({name: 1}, exact(target.coefficient * factor))])
    return new


def _sum(parts: Iterable[tuple[Content, Coefficient]]) -> Content:
    total: Content = {}
    for content, factor in parts:
        for name, coefficient in content.items():
            total[name] = total.get(name, 0) + factor * coefficient
    return {name: coefficient for name, coefficient in total.items() if coefficient}


@dataclass(frozen=True)
class StageMove:
    """One step: its text, and the names of the blocks that it reads and writes; a product reads its operands first.

    A block that is only added to, or that a sum changes, is written and not counted among those read.
    """

    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def stage_moves(stage: Stage) -> tuple[StageMove, ...]:
    """The steps of a stage, in order; sums that share sub-expressions are written out."""
    if isinstance(stage, LinearStage):
        return tuple(move for block_map in stage.maps for move in _linear(block_map))
    return tuple(map(_product, stage.products))


def _linear(block_map: BlockMap) -> Iterator[StageMove]:
    for target, row, kept in zip(block_map.targets, block_map.map.matrix, block_map.kept, strict=True):
        terms: dict[Block, Coefficient] = {block_map.sources[i]: c for i, c in row}
        if kept:
            terms[target] = terms.get(target, 0) + kept
        reads = tuple(str(block) for block in terms if block != target)
        yield StageMove(update_text(target, terms), reads, (str(target),))


def _product(product: Product) -> StageMove:
    others = tuple(str(block) for target in product.targets for block, _ in target.plus)
    reads = (str(product.left), str(product.right), *others)
    return StageMove(_product_text(product), reads, tuple(str(target.block) for target in product.targets))


def _product_text(product: Product) -> str:
    """The step; a factor that all targets share stands before the product, if it scales nothing else."""
    name, targets = f"{product.left} * {product.right}", product.targets
    if len(targets) == 1 and isinstance(targets[0], ScaledTarget):
        return "".join(scaled_product(product))
    if all(map(_adds, targets)) or not any(target.terms for target in targets):
        signs = [-1 if is_negative(target.coefficient) else 1 for target in targets]
        sizes = [target.coefficient * sign for target, sign in zip(targets, signs, strict=True)]
        shared = sizes[0] if all(size == sizes[0] for size in sizes) else 1
        left = signs if shared != 1 else [target.coefficient for target in targets]
        blocks = ", ".join(signed_sum([(c, str(target.block))]) for c, target in zip(left, targets, strict=True))
        return f"{blocks} {'+=' if targets[0].terms else '='} {signed_sum([(shared, name)])}"
    return " ; ".join(f"{t.block} = {signed_sum([(t.coefficient, name), *((c, str(b)) for b, c in t.terms)])}" for t in targets)


def _adds(target: Target) -> bool:
    """True if the language writes `+=`, where the first write of C implies its beta."""
    return target.accumulates or bool(target.kept and not isinstance(target, ScaledTarget))


@dataclass(frozen=True)
class SpaceLine:
    """A, B, C or a workspace: its blocks, of the size of operand `shape`'s, in rows of `columns` (0 for a temporary)."""

    name: str
    shape: str
    blocks: tuple[str, ...]
    columns: int


@dataclass(frozen=True)
class StageProduct:
    """A product of a stage: its two operands, and (block, coefficient) for every target."""

    name: str
    operands: tuple[str, str]
    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class StageLine:
    """One stage of the author's schedule, and the state of every block after it.

    `width` counts the simultaneous steps. `contended` are the blocks of C to which several products of the stage are added. `holds`
    describes each block that holds products, (block, `M1 + M4 - M5`), without the old C and an implied alpha, or a sum too long for
    `states`. `moves` are the steps as the language writes them, where `steps` show the original blocks: `A11 -= A22` gives `A11 = A11`.
    """

    number: int
    kind: str
    steps: tuple[str, ...]
    contended: tuple[str, ...] = ()
    width: int = 1
    products: tuple[StageProduct, ...] = ()
    states: tuple[BlockState, ...] = ()
    holds: tuple[tuple[str, str], ...] = ()
    moves: tuple[StageMove, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """The steps for readers: with original blocks, or for a restoring stage the steps that it undoes."""
        return tuple(move.text for move in self.moves) if self.kind == "restore" else self.steps


@dataclass(frozen=True)
class ScheduleFacts:
    """The proved facts about the schedule as written, starting with the `result` in C.

    `written` is the result in the author's words if the proved form is more general, else empty: `C = A*B` for any alpha.
    `why_not_recursive` is empty if recursion in place is safe. `direct`: C is right, but by other products than the scheme's.
    """

    name: str
    citation: str
    result: str
    in_place: bool
    restores: tuple[str, ...]
    recursive: bool
    why_not_recursive: str
    direct: bool
    spaces: tuple[SpaceLine, ...]
    stages: tuple[StageLine, ...]
    fates: tuple[OperandFate, ...]
    costs: tuple[ScheduleCosts, ...]
    shapes: tuple[ShapeConditions, ...]
    sha256: str
    written: str = ""


@dataclass(frozen=True)
class LoweredFacts:
    """The costs of the schedule as it runs, at some number of levels.

    `sums_traffic` counts the blocks that the linear stages read and write, in units of N*N elements of a square problem; `workspace` is the
    memory beyond A, B and C in the same unit. `widths` are the products of each of the `colours` launches that multiply: products of a
    stage that add to the same block of C have different colours, and are launched one after the other; or they are `contended`, and add
    to it atomically. `inputs` is `preserve`, `restore` or `consume`.
    """

    inputs: str
    levels: int
    launches: int
    products: int
    colours: int
    widths: tuple[int, ...]
    sums_traffic: float
    workspace: float
    contended: bool
    sha256: str


def schedule_facts(
    schedule: AnySchedule, proof: ScheduleProof, written: AnySchedule | None = None, written_proof: ScheduleProof | None = None
) -> ScheduleFacts:
    """The facts of a schedule and its proof, failed or not; of one derived from the `written` one, that one's steps."""
    result = str(schedule.result)
    scaled = isinstance(written, ScaledSchedule) and written.name == schedule.name
    header = str(written.result) if scaled and written is not None else ""
    shown, stage_facts = (written, written_proof.stages) if scaled and written and written_proof else (schedule, proof.stages)
    names = _product_names(shown, stage_facts)
    sums = product_sums(shown, names, isinstance(schedule, Schedule))
    stages = zip(shown.stages, stage_facts, names, sums, strict=True)
    return ScheduleFacts(
        name=schedule.name,
        citation=schedule.citation,
        result=result,
        in_place=schedule.runs_in_place,
        restores=proof.restored if schedule.runs_in_place else (),
        recursive=proof.recursive,
        why_not_recursive=proof.why_not,
        direct=proof.direct,
        spaces=tuple(SpaceLine(s.name, s.shape, tuple(map(str, s.blocks)), s.columns) for s in shown.spaces),
        stages=tuple(_stage_line(*stage) for stage in stages),
        fates=proof.fates,
        costs=(proof.costs,) if proof.costs is not None else (),
        shapes=(proof.shapes,) if proof.shapes is not None and proof.shapes.statement else (),
        sha256=schedule_hash(schedule),
        written=header if header != result else "",
    )


def stage_title(kind: str, contended: Sequence[str]) -> str:
    """A stage's kind, and the blocks to which several of its products are added."""
    return kind + (f" (contended: {', '.join(contended)})" if contended else "")


def lowered_facts(lowered: Schedule, inputs: str, launches: int) -> LoweredFacts:
    """The costs of a lowered schedule with its number of launches."""
    products = [stage for stage in lowered.stages if isinstance(stage, ProductStage)]
    maps = [one for stage in lowered.stages if isinstance(stage, LinearStage) for one in stage.maps]
    m, k, n = lowered.m, lowered.k, lowered.n
    share = {"A": 1 / (m * k), "B": 1 / (k * n), "C": 1 / (m * n)}  # of a block, in units of N*N
    return LoweredFacts(
        inputs=inputs,
        levels=lowered.levels,
        launches=launches,
        products=sum(len(stage.products) for stage in products),
        colours=len(products),
        widths=tuple(len(stage.products) for stage in products),
        sums_traffic=sum(share[lowered.space(block.space).shape] for one in maps for block in one.sources + one.targets),
        workspace=_workspace(lowered),
        contended=any(stage.contended for stage in products),
        sha256=schedule_hash(lowered),
    )


def _product_names(schedule: AnySchedule, facts: Sequence[StageFact]) -> list[tuple[str, ...]]:
    numbers = count(1)
    names = []
    for stage, fact in zip(schedule.stages, facts, strict=True):
        own = [f"P{next(numbers)}" for _ in stage.products] if isinstance(stage, ProductStage) else []
        known = fact.products if len(fact.products) == len(own) else ("",) * len(own)
        names.append(tuple(name or number for name, number in zip(known, own, strict=True)))
    return names


def _stage_line(stage: Stage, fact: StageFact, names: Sequence[str], sums: Mapping[str, str]) -> StageLine:
    products: list[StageProduct] = []
    if isinstance(stage, ProductStage):
        for name, p in zip(names, stage.products, strict=True):
            products.append(StageProduct(name, (str(p.left), str(p.right)), tuple((str(t.block), str(t.coefficient)) for t in p.targets)))
    known = fact.number, fact.kind, fact.steps, fact.contended, fact.width
    return StageLine(*known, tuple(products), fact.states, tuple(sums.items()), stage_moves(stage))


def _workspace(schedule: Schedule) -> float:
    """The buffer of all workspaces in units of N*N, for an N that needs no rounding."""
    size = 64 * schedule.m * schedule.k * schedule.n
    return place_schedule(schedule, size, size, size, 8).workspace_elements / size**2


PROVED, REFUSED = "proved", "refused"


@dataclass(frozen=True)
class Refusal:
    """A diagnostic as text: `place` is file:line:column or empty, `excerpt` the source line with its caret and label."""

    code: str
    message: str
    place: str
    excerpt: tuple[str, ...]
    notes: tuple[str, ...]
    hints: tuple[str, ...]


@dataclass(frozen=True)
class KernelLine:
    """One built image; `spills` counts bytes stored and loaded, `occupancy` is the target's. PTX has no such figures."""

    kernel: str
    architecture: str
    threads: int
    registers: int | None
    shared_bytes: int | None
    spills: int | None
    occupancy: tuple[int, float, str] | None
    image_bytes: int
    cached: bool
