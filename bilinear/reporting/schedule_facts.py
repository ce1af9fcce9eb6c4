"""The facts that a report gives about a schedule: as written and proved, and its costs once lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from bilinear.analysis.identity import schedule_hash
from bilinear.ir.schedule import AnySchedule, LinearStage, ProductStage, ScaledSchedule, Schedule, Stage
from bilinear.lowering.place import place_schedule
from bilinear.reporting.product_sums import product_sums
from bilinear.reporting.stage_moves import Move, stage_moves
from bilinear.verify.facts import BlockState, OperandFate, ScheduleCosts, ShapeConditions, StageFact
from bilinear.verify.schedule import ScheduleProof


@dataclass(frozen=True)
class SpaceLine:
    """A, B, C or a workspace, with the names of its blocks, which have the size of operand `shape`'s.

    They stand in rows of `columns` blocks; a temporary is one block, with 0.
    """

    name: str
    shape: str
    blocks: tuple[str, ...]
    columns: int


@dataclass(frozen=True)
class ProductStep:
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
    products: tuple[ProductStep, ...] = ()
    states: tuple[BlockState, ...] = ()
    holds: tuple[tuple[str, str], ...] = ()
    moves: tuple[Move, ...] = ()

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
    stage that add to the same block of C have different colours, and are launched one after the other. `inputs` is `preserve`, `restore`
    or `consume`.
    """

    inputs: str
    levels: int
    launches: int
    products: int
    colours: int
    widths: tuple[int, ...]
    sums_traffic: float
    workspace: float
    sha256: str


def schedule_facts(
    schedule: AnySchedule, proof: ScheduleProof, written: AnySchedule | None = None, written_proof: ScheduleProof | None = None
) -> ScheduleFacts:
    """The facts of a schedule and its proof, which may have failed.

    `written` is the author's schedule, with its proof, if `schedule` was derived from it; its steps and temporaries are reported.
    """
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


def lowered_facts(lowered: Schedule, inputs: str, launches: int) -> LoweredFacts:
    """The costs of a lowered schedule with its number of launches."""
    products = [stage for stage in lowered.stages if isinstance(stage, ProductStage)]
    return LoweredFacts(
        inputs=inputs,
        levels=lowered.levels,
        launches=launches,
        products=sum(len(stage.products) for stage in products),
        colours=len(products),
        widths=tuple(len(stage.products) for stage in products),
        sums_traffic=_sums_traffic(lowered),
        workspace=_workspace(lowered),
        sha256=schedule_hash(lowered),
    )


def _product_names(schedule: AnySchedule, facts: Sequence[StageFact]) -> list[tuple[str, ...]]:
    """The products of each stage by their names in the scheme, or P1, P2, ... if they are not the scheme's."""
    numbers = count(1)
    names = []
    for stage, fact in zip(schedule.stages, facts, strict=True):
        own = [f"P{next(numbers)}" for _ in stage.products] if isinstance(stage, ProductStage) else []
        known = fact.products if len(fact.products) == len(own) else ("",) * len(own)
        names.append(tuple(name or number for name, number in zip(known, own, strict=True)))
    return names


def _stage_line(stage: Stage, fact: StageFact, names: Sequence[str], sums: Mapping[str, str]) -> StageLine:
    products: list[ProductStep] = []
    if isinstance(stage, ProductStage):
        for name, p in zip(names, stage.products, strict=True):
            products.append(ProductStep(name, (str(p.left), str(p.right)), tuple((str(t.block), str(t.coefficient)) for t in p.targets)))
    known = fact.number, fact.kind, fact.steps, fact.contended, fact.width
    return StageLine(*known, tuple(products), fact.states, tuple(sums.items()), stage_moves(stage))


def _block_share(schedule: Schedule, space: str) -> float:
    """The size of a block of a space in units of N*N."""
    m, k, n = schedule.m, schedule.k, schedule.n
    return {"A": 1 / (m * k), "B": 1 / (k * n), "C": 1 / (m * n)}[schedule.space(space).shape]


def _sums_traffic(schedule: Schedule) -> float:
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(_block_share(schedule, block.space) for m in maps for block in m.sources + m.targets)


def _workspace(schedule: Schedule) -> float:
    """The buffer of all workspaces in units of N*N, for an N that needs no rounding."""
    size = 64 * schedule.m * schedule.k * schedule.n
    return place_schedule(schedule, size, size, size, 8).workspace_elements / size**2
