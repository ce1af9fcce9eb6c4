"""A scheme and its schedules as a file for the proof assistant Rocq (Coq), with theorems that its kernel decides."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from bilinear.analysis.identity import schedule_hash
from bilinear.codegen.render import environment
from bilinear.errors import fail
from bilinear.ir.number import Coefficient, Monomial, Symbolic, rational, residue, square
from bilinear.ir.schedule import AnySchedule, Block, LinearStage, ScaledSchedule, Schedule, Stage
from bilinear.ir.scheme import Scheme
from bilinear.visible import visible

Entry = tuple[str, str]
"""A coefficient and a block, as Rocq reads them."""
Step = tuple[str, str, dict[str, object]]
"""The target of a step, the factor of its old value, and its source: a `form`, or a `coefficient` and the operands `left` and `right`."""
OTHERWISE = "`--certificate FILE` writes what examples/check_certificate.py checks"


def rocq_text(scheme: Scheme, schedules: Iterable[AnySchedule] = ()) -> str:
    """The text of the file: definitions, a checker with the proof that it is right, the tables, and a theorem for each.

    Schedules have marked first writes; schedules with the same stages appear once. Raises `BilinearError` (E595) if there is no theorem:
    for approximate schemes, and for schedules with explicit scaling.
    """
    if scheme.ring.is_approximate:
        raise fail("E595", f"{scheme.name} is approximate, and the theorem for Rocq says that C is exactly A*B", OTHERWISE)
    distinct = list({schedule_hash(schedule): schedule for schedule in schedules}.values())
    writer = _Writer(scheme, distinct)
    return (
        environment()
        .get_template("certificate.v.j2")
        .render(
            title=_comment(scheme.name),
            ring=writer.ring,
            scheme=writer.scheme(scheme),
            schedules=[writer.schedule(schedule) for schedule in distinct],
        )
    )


class _Writer:
    """The views that the template prints, with coefficients as Rocq reads them.

    The ring is the smallest that holds all coefficients: what holds over Z holds over every ring.
    """

    def __init__(self, scheme: Scheme, schedules: Iterable[AnySchedule]) -> None:
        tables = (c for table in scheme.tables for row in table for _, c in row)
        own = [*tables, *(c for schedule in schedules for c in schedule.coefficients)]
        self.declared = scheme.ring
        self.symbolic = any(isinstance(c, Symbolic) for c in own)
        self.whole = not self.symbolic and all(rational(c).denominator == 1 for c in own)
        self.ring = {"coefficients": self._coefficients(), "scope": "Z_scope" if scheme.ring.modulus or self.whole else "Q_scope"}

    def _coefficients(self) -> str:
        if self.declared.modulus:
            return f"(residues {self.declared.modulus})"
        if self.symbolic:
            return f"(with_root ({square(self.declared.generator)}))"
        return "integers" if self.whole else "rationals"

    def number(self, value: Coefficient) -> str:
        """A coefficient: an integer, a fraction `1#2`, or the pair (a, b) for a + b*sqrt(d)."""
        if self.declared.modulus:
            return str(residue(value, self.declared.modulus))
        if not self.symbolic:
            return _fraction(rational(value))
        parts: dict[Monomial, Fraction] = dict(value.terms) if isinstance(value, Symbolic) else {(): rational(value)}
        root: Monomial = ((self.declared.generator, 1),)
        return f"({_fraction(parts.get((), Fraction(0)))}, {_fraction(parts.get(root, Fraction(0)))})"

    def scheme(self, scheme: Scheme) -> dict[str, object]:
        """Each product with its two forms, and the blocks of C that it is added to."""
        u, v, w = scheme.tables
        outputs: list[list[Entry]] = [[] for _ in scheme.products]
        for entry, form in enumerate(w):
            for product, c in form:
                outputs[product].append((self.number(c), f"C {entry // scheme.n} {entry % scheme.n}"))
        rows = [
            (
                _comment(name),
                [(self.number(c), f"A {i // scheme.k} {i % scheme.k}") for i, c in left],
                [(self.number(c), f"B {i // scheme.n} {i % scheme.n}") for i, c in right],
                out,
            )
            for name, left, right, out in zip(scheme.products, u, v, outputs, strict=True)
        ]
        title = f"The scheme {scheme.name} {scheme.format} over {scheme.ring}. {scheme.citation}"
        return {"title": _comment(title).strip(), "grid": f"{scheme.m} {scheme.k} {scheme.n}", "products": rows}

    def schedule(self, schedule: AnySchedule) -> dict[str, object]:
        """The stages, step by step, and the claims about them."""
        if isinstance(schedule, ScaledSchedule):
            message = f"{schedule.name} has explicit scaling, and the theorem for Rocq implies alpha and beta"
            raise fail("E595", message, OTHERWISE, span=schedule.span)
        spaces = {space.name: number for number, space in enumerate(schedule.workspaces)}
        restored = [f"grid {x} {rows} {columns}" for x, rows, columns in _operands(schedule) if x in schedule.keeps]
        title = f"The schedule {schedule.name}; workspaces: {', '.join(f'T {i} is {name}' for name, i in spaces.items()) or 'none'}"
        return {
            "title": _comment(title),
            "grid": f"{schedule.m} {schedule.k} {schedule.n}",
            "adds": str(not schedule.overwrites).lower(),
            "restored": " ++ ".join(restored) or "[]",
            "stages": [self._stage(stage, spaces) for stage in schedule.stages],
        }

    def _stage(self, stage: Stage, spaces: dict[str, int]) -> list[Step]:
        steps: list[Step] = []
        if isinstance(stage, LinearStage):
            for block_map in stage.maps:
                for target, kept, form in zip(block_map.targets, block_map.kept, block_map.map.matrix, strict=True):
                    terms = [(self.number(c), _block(block_map.sources[i], spaces)) for i, c in form]
                    steps.append((_block(target, spaces), _kept(kept), {"form": terms}))
            return steps
        for product in stage.products:
            operands: dict[str, object] = {"left": _block(product.left, spaces), "right": _block(product.right, spaces)}
            for written in product.targets:
                source = {"coefficient": self.number(written.coefficient), **operands}
                steps.append((_block(written.block, spaces), _kept(written.kept), source))
        return steps


def _operands(schedule: Schedule) -> tuple[tuple[str, int, int], tuple[str, int, int]]:
    return ("A", schedule.m, schedule.k), ("B", schedule.k, schedule.n)


def _kept(kept: Coefficient) -> str:
    return "Beta" if isinstance(kept, Symbolic) else "Keep" if kept else "Drop"


def _block(block: Block, spaces: dict[str, int]) -> str:
    place = f"{max(block.row, 0)} {max(block.column, 0)}"
    return f"{block.space} {place}" if block.space in ("A", "B", "C") else f"T {spaces[block.space]} {place}"


def _fraction(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}#{value.denominator}"


def _comment(text: str) -> str:
    """Text that stays in one comment of Rocq, which reads texts between quotes and comments in comments."""
    return visible(text).replace('"', "'").replace("(*", "( *").replace("*)", "* )")
