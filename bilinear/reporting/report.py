"""The verification report: one frozen object; text, JSON and Markdown are views of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bilinear.analysis.accuracy import growth_factor
from bilinear.analysis.identity import schedule_hash, scheme_hash
from bilinear.codegen.program import Program
from bilinear.frontend import Loaded
from bilinear.ir.linear import LinearMap
from bilinear.ir.schedule import LinearStage, Schedule
from bilinear.planner.prepare import Prepared
from bilinear.reporting.table import aligned


@dataclass(frozen=True)
class SchemeFacts:
    """What is proved and known of the scheme; `growth` is the norm-wise growth factor of one level."""

    name: str
    format: str
    ring: str
    citation: str
    equations: int
    additions: tuple[int, int, int]
    scalings: int
    exponent: float
    growth: str
    sha256: str


@dataclass(frozen=True)
class StageLine:
    """One stage of the author's schedule: its steps, and the blocks to which several products add."""

    number: int
    kind: str
    steps: tuple[str, ...]
    contended: tuple[str, ...]


@dataclass(frozen=True)
class ScheduleFacts:
    """What is proved of the schedule as written, and what it costs once lowered.

    `sums_traffic` counts the blocks that the lowered linear stages read and write, in units of N*N elements of a square problem;
    `workspace` is what is allocated beyond A, B and C, in the same unit.
    """

    name: str
    in_place: bool
    restores: tuple[str, ...]
    recursive: bool
    stages: tuple[StageLine, ...]
    inputs: str
    levels: int
    launches: int
    products: int
    colours: int
    sums_traffic: float
    workspace: float
    sha256: str


@dataclass(frozen=True)
class KernelLine:
    """One built image: `spills` counts bytes stored and loaded; PTX has no resources yet."""

    kernel: str
    architecture: str
    threads: int
    registers: int | None
    shared_bytes: int | None
    spills: int | None
    image_bytes: int
    cached: bool


@dataclass(frozen=True)
class Report:
    """Proofs and kernels of one algorithm."""

    algorithm: str
    scheme: SchemeFacts
    schedule: ScheduleFacts
    kernels: tuple[KernelLine, ...] = ()

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def to_json(self) -> dict[str, Any]:
        """The report for machines."""
        return {"format": "bilinear-report/1", "proved": True, **asdict(self)}

    def json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_json(), indent=1) + "\n"

    def markdown(self) -> str:
        """The report as Markdown."""
        from bilinear.codegen.render import environment

        return environment().get_template("report.md.j2").render(report=self)


def make_report(loaded: Loaded, prepared: Prepared, inputs: str, programs: Sequence[Program] = ()) -> Report:
    """The report of an algorithm whose proofs hold (`prepare` raises where one does not)."""
    return Report(
        loaded.schedule.name if loaded.schedule is not None and inputs != "preserve" else loaded.scheme.name,
        _scheme_facts(prepared),
        _schedule_facts(prepared, inputs),
        tuple(line for program in programs for line in _kernel_lines(program)),
    )


def _scheme_facts(prepared: Prepared) -> SchemeFacts:
    scheme, proof = prepared.scheme, prepared.scheme_proof
    maps: tuple[LinearMap, ...] = (scheme.u, scheme.v, scheme.w)
    additions = (scheme.u.additions, scheme.v.additions, scheme.w.additions)
    volume = scheme.m * scheme.k * scheme.n
    exponent = 3 * math.log(scheme.rank) / math.log(volume) if volume > 1 else 3.0
    return SchemeFacts(
        scheme.name,
        scheme.format,
        scheme.ring,
        scheme.citation,
        proof.equations,
        additions,
        sum(linear.scalings for linear in maps),
        exponent,
        str(growth_factor(scheme)),
        scheme_hash(scheme),
    )


def _schedule_facts(prepared: Prepared, inputs: str) -> ScheduleFacts:
    authored, lowered, proof = prepared.authored, prepared.schedule, prepared.authored_proof
    stages = tuple(StageLine(f.number, f.kind, f.steps, f.contended) for f in proof.stages)
    products = [stage for stage in lowered.stages if not isinstance(stage, LinearStage)]
    return ScheduleFacts(
        authored.name,
        authored.runs_in_place,
        proof.restored if authored.runs_in_place else (),
        proof.recursive,
        stages,
        inputs,
        lowered.levels,
        len(lowered.stages),
        sum(len(stage.products) for stage in products),
        len(products),
        _sums_traffic(lowered),
        _workspace(lowered),
        schedule_hash(lowered),
    )


def _block_share(schedule: Schedule, space: str) -> float:
    """The size of a block of a space in units of N*N."""
    m, k, n = schedule.m, schedule.k, schedule.n
    return {"A": 1 / (m * k), "B": 1 / (k * n), "C": 1 / (m * n)}[schedule.space(space).shape]


def _sums_traffic(schedule: Schedule) -> float:
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    return sum(_block_share(schedule, block.space) for m in maps for block in m.sources + m.targets)


def _workspace(schedule: Schedule) -> float:
    return sum(s.rows * s.columns * _block_share(schedule, s.name) for s in schedule.workspaces)


def _kernel_lines(program: Program) -> list[KernelLine]:
    lines = []
    for kernel, images in zip(program.kernels, program.built, strict=True):
        for built in images:
            own = built.resources[0] if built.resources else None
            lines.append(
                KernelLine(
                    kernel.name,
                    built.architecture,
                    kernel.threads[0] * kernel.threads[1],
                    own.registers if own else None,
                    own.shared_bytes + kernel.shared_bytes if own else None,
                    own.spill_stores + own.spill_loads if own else None,
                    len(built.image),
                    built.cached,
                )
            )
    return lines


def _text(report: Report) -> list[str]:
    s, t = report.scheme, report.schedule
    lines = [f"{report.algorithm}: proved", ""]
    facts = [
        ("scheme", f"{s.name} {s.format} over {s.ring}"),
        *([("source", s.citation)] if s.citation else []),
        ("Brent equations", f"{s.equations} of {s.equations} hold (exact)"),
        ("additions", f"{sum(s.additions)} = {s.additions[0]} on A + {s.additions[1]} on B + {s.additions[2]} on C"),
        ("exponent", f"{s.exponent:.4f}"),
        ("growth factor", f"{s.growth} a level"),
        ("scheme hash", s.sha256[:16]),
        ("schedule", f"{t.name}: {'in place' if t.in_place else 'expansion, products, recomposition'}, inputs {_promise(t)}"),
        ("recursion", "safe in place at every level" if t.recursive else "by workspace" if not t.in_place else "not safe in place"),
        ("lowered", f"{t.levels} level(s): {t.launches} launches, {t.products} products in {t.colours} contention-free groups"),
        ("sums move", f"{t.sums_traffic:g} N^2 elements"),
        ("workspace", f"{t.workspace:g} N^2 elements" if t.workspace else "nothing beyond A, B, C"),
    ]
    lines += aligned([("", *fact) for fact in facts], header=None)
    lines += ["", "stages as proved:"]
    for stage in t.stages:
        lines.append(f"  {stage.number} {stage.kind}" + (f"  (contended: {', '.join(stage.contended)})" if stage.contended else ""))
        lines += [f"      {step}" for step in stage.steps]
    if report.kernels:
        rows = [
            (k.kernel, k.architecture, k.threads, _number(k.registers), _number(k.shared_bytes), _number(k.spills), k.image_bytes)
            for k in report.kernels
        ]
        header = ("kernel", "built for", "threads", "registers", "shared B", "spills B", "image B")
        lines += ["", *aligned(rows, header)]
    return lines


def _promise(facts: ScheduleFacts) -> str:
    return {"preserve": "never written", "restore": "restored", "consume": "consumed"}[facts.inputs]


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
