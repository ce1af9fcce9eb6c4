"""What becomes of A and of B: every verdict against exact execution, and against every input over a small field."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each_case import each
from schedule_oracle import computes_in_every_order, run_stage, start_of, steps
from trace_oracle import leaves_no_trace, lost_everywhere

from bilinear.errors import BilinearError
from bilinear.frontend import load, parse_source
from bilinear.ir.schedule import AnySchedule, Block, Product, ProductStage, Schedule, Target
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.facts import ScheduleFacts, schedule_facts
from bilinear.reporting.report import fate_lines
from bilinear.scheduling.in_place.find import find_in_place
from bilinear.source import Source
from bilinear.verify.facts import LINEAR, LOST, RECOMPUTE, RESTORED, UNDECIDED, OperandFate
from bilinear.verify.hazards import why_not_recursive
from bilinear.verify.schedule import ScheduleProof, prove_schedule

CLASSICAL = ["C11 = A11*B11", "C12 = A11*B12", "C21 = A21*B11", "C22 = A21*B12"]
CLASSICAL += ["C11 += A12*B21", "C12 += A12*B22", "C21 += A22*B21", "C22 += A22*B22"]


def with_steps(*more: str, head: str = "C = A*B, temporaries X Y", before: tuple[str, ...] = ()) -> AnySchedule:
    lines = "".join(f"  stage {{ {step} }}\n" for step in (*before, *CLASSICAL, *more))
    return parse_source(Source("x.bl", f"schedule s of naive2x2: {head}\n{lines}")).schedules[0]


def fates(schedule: AnySchedule) -> dict[str, OperandFate]:
    proof = prove_schedule(schedule)
    assert proof.holds, proof.failures
    return {fate.operand: fate for fate in proof.fates}


CASES = {
    "nothing written": ((), RESTORED, RESTORED),
    "written and taken back": (("A11 += A12", "A11 -= A12"), RESTORED, RESTORED),
    "a regular map": (("A11 += A12 ; A12 -= 2 A21",), LINEAR, RESTORED),
    "a singular map": (("A11 = A12",), LOST, RESTORED),
    "A and B mixed, regularly": (("A11 += B11 ; B11 = A11 - B11",), LINEAR, LINEAR),
    "B over A": (("A11 = B11",), LOST, RESTORED),
    "A moved to B's place": (("X = B11 ; Y = A11", "B11 = Y ; A11 = X"), LINEAR, LINEAR),
    "a known product added": (("A12 += A11*B11",), RECOMPUTE, RESTORED),
    "two known products, one after the other": (("X = A11*B11", "A12 += X", "B12 += A22*B22"), RECOMPUTE, RECOMPUTE),
    "products that need each other's operands": (("X = A11*B11", "Y = A22*B22", "A12 += X", "B12 += Y", "A21 -= Y"), RECOMPUTE, RECOMPUTE),
    "a product with its own operand": (("X = A11*B11", "A11 += X"), LOST, RESTORED),
    "lost at one place only": (("X = A11*B11", "A11 += 5 X"), LOST, RESTORED),
    "a product stored over a block": (("A12 = A11*B11",), LOST, RESTORED),
    "lost among matrices only": (("X = A12*B11", "Y = A11*B11", "A11 += X", "A12 -= Y"), LOST, RESTORED),
    "a sum of both operands": (("A11 += B11", "B11 = A11"), LOST, LOST),
    "lost at every input, and more at some": (("X = A11*B12", "A11 = A12", "A12 = X"), LOST, RESTORED),
    "lost in a factor": (("X = A11 - A12", "Y = X*B11", "A11 = Y", "A12 = Y"), LOST, RESTORED),
    "a chain that unwinds": (("X = A11*B11", "A12 += X", "Y = A21*B22", "B12 += Y", "A22 += B12"), RECOMPUTE, RECOMPUTE),
}


@each("case", CASES)
def test_verdicts(case: str) -> None:
    more, a, b = CASES[case]
    schedule = with_steps(*more)
    found = fates(schedule)
    assert (found["A"].verdict, found["B"].verdict) == (a, b)
    check(schedule, found, more)


def check(schedule: AnySchedule, found: dict[str, OperandFate], more: tuple[str, ...]) -> None:
    """The printed steps bring operands back, executed as they stand; what is lost ends in one state from two inputs."""
    recover(schedule, tuple(found.values()))
    for side, fate in found.items():
        if fate.verdict == LOST:
            check_counterexample(schedule, side, fate)


def recover(schedule: AnySchedule, found: tuple[OperandFate, ...]) -> None:
    """Run a schedule on matrices that do not commute, then execute what the report prints line by line: the operands are as before."""
    generator = np.random.default_rng(1)
    given = {
        block: np.array([[Fraction(int(x)) for x in row] for row in generator.integers(-9, 9, (2, 2))], dtype=object)
        for space in schedule.spaces[:3]
        for block in space.blocks
    }
    state = {str(block): value for block, value in run(schedule, given, 2).items()}
    steps = dict.fromkeys(fate.restoring for fate in found)
    printed = [line for heading, lines in fate_lines(told_of(schedule, found)) if "back" in heading for line in lines]
    assert printed == [line for lines in steps for line in lines]
    executed(printed, state)
    for block, value in given.items():
        if any(fate.operand == block.space and fate.verdict in (RESTORED, LINEAR, RECOMPUTE) for fate in found):
            assert np.array_equal(state[str(block)], value), (block, printed)


def executed(lines: Iterable[str], state: dict[str, Any], product: str = "@") -> None:
    """Execute lines like `A12 -= 2 (A11 - A22)*B11 ; A11 = A21` one after the other, by Python's own grammar."""
    for line in lines:
        before = {"Fraction": Fraction, **state}
        for step in line.split(" ; "):
            target, operator, right = step.split(" ", 2)
            right = re.sub(r"(?<![A-Z0-9])(\d+) (?=[A-Z(])", r"\1*", right.replace("*", product))
            right = re.sub(r"(\d+/\d+) ", r"Fraction('\1')*", right)
            value = eval(right, before)
            state[target] = value if operator == "=" else before[target] - value if operator == "-=" else before[target] + value


def told_of(schedule: AnySchedule, found: tuple[OperandFate, ...]) -> ScheduleFacts:
    """The facts of a report, of which the fates alone are looked at."""
    return replace(schedule_facts(schedule, prove_schedule(schedule)), fates=found)


@pytest.mark.parametrize("name", ["split_k", "naive2x2", "strassen", "winograd"])
def test_operands_that_a_schedule_consumes_are_brought_back_by_what_is_printed(name: str) -> None:
    schedule = find_in_place(load(name).scheme, consume=True, seconds=60)
    check(schedule, fates(mark_first_writes(schedule)), ())


def check_counterexample(schedule: AnySchedule, side: str, fate: OperandFate) -> None:
    inputs = [told(line) for line in fate.counterexample]
    size = max(len(value) for state in inputs for value in state.values())
    zero = np.full((size, size), Fraction(0), dtype=object)
    ends = [run(schedule, state, size) for state in inputs[:2]]
    assert any(np.any(inputs[0].get(b, zero) != inputs[1].get(b, zero)) for b in schedule.space(side).blocks)
    for block, value in ends[0].items():
        assert np.array_equal(value, ends[1][block]) and np.array_equal(value, inputs[2].get(block, zero))
    assert fate.lost_dimensions == len(fate.confused) == lost_everywhere(schedule, side)
    assert all(leaves_no_trace(schedule, change) for change in fate.confused)


def told(line: str) -> dict[Block, Any]:
    """The blocks that a line of a counterexample names, as matrices."""
    values = re.findall(r"([ABC])(\d)(\d) = (-?[0-9/]+|\[[^\]]*\])", line)
    tables = [[[Fraction(x) for x in row.split()] for row in value.strip("[]").split("|")] for *_, value in values]
    blocks = [Block(space, int(row) - 1, int(column) - 1) for space, row, column, _ in values]
    return {block: np.array(table, dtype=object) for block, table in zip(blocks, tables, strict=True)}


def run(schedule: AnySchedule, given: dict[Block, Any], size: int = 1, alpha: int = 1, beta: int = 1) -> dict[Block, Any]:
    blocks = [block for space in schedule.spaces[:3] for block in space.blocks]
    zero = np.full((size, size), Fraction(0), dtype=object)
    state: Any = start_of(schedule, {block: given.get(block, zero) for block in blocks})
    for stage in schedule.stages:
        run_stage(schedule, stage, state, range(len(steps(stage))), alpha, beta)
    return {block: value for block, value in state.items() if block.space in "AB"}


def test_what_a_counterexample_says() -> None:
    fate = fates(with_steps("A11 = A12"))["A"]
    assert fate.lost_dimensions == 1
    assert fate.confused == ("A11 += X",)
    assert fate.counterexample == (
        "one input: A11 = 1, all others 0",
        "another: every block of A and B is 0",
        "both end with: every block of A and B is 0",
    )
    product = fates(with_steps("X = A11*B11", "A11 += 5 X"))["A"]
    assert product.counterexample == (
        "one input: A11 = 1, B11 = -1/5, all others 0",
        "another: B11 = -1/5, all others 0",
        "both end with: B11 = -1/5, all others 0",
    )


def test_what_is_lost_at_some_inputs_only_is_not_counted() -> None:
    """A11 = A11*B11 is told wherever B11 is regular, and 5 A11*B11 + A11 wherever B11 has no eigenvalue -1/5."""
    for more in (("X = A11*B11", "A11 = X"), ("X = A11*B11", "A11 += 5 X")):
        fate = fates(with_steps(*more))["A"]
        assert (fate.verdict, fate.lost_dimensions, fate.confused) == (LOST, 0, ())
        assert len(fate.counterexample) == 3


def test_changes_that_leave_no_trace_keep_their_factors() -> None:
    fate = fates(with_steps("A11 += 2 A12 ; A21 -= 3 B21 ; B21 = A21", "A12 = A11"))["A"]
    assert fate.confused == ("A11 += 2 X ; A12 -= X",)
    assert leaves_no_trace(with_steps("A11 += 2 A12", "A12 = A11"), "A11 += 2 X ; A12 -= X")
    assert not leaves_no_trace(with_steps("A11 += 2 A12", "A12 = A11"), "A11 += X ; A12 -= X")


def over(ring: str, *more: str, head: str = "C = A*B, temporaries X Y") -> ScheduleProof:
    table = f"scheme z <1,1,1;1> over {ring}\n  C11 = A11*B11\n"
    body = "".join(f"  stage {{ {step} }}\n" for step in ("C11 = A11*B11", *more))
    loaded = parse_source(Source("x.bl", f"{table}schedule s of z: {head}\n{body}"))
    return prove_schedule(loaded.schedules[0], loaded.schemes[0])


@each(
    ("ring", "more", "verdict", "divisor"),
    [
        ("Z", ("A11 = 2 A11",), LINEAR, "2"),
        ("Z", ("A11 = -1 A11",), LINEAR, ""),
        ("Z", ("A11 += B11 ; B11 = 3 A11 - 3 B11",), LINEAR, "6"),
        ("Z", ("X = A11*B11", "A11 += X"), LOST, ""),
        ("Q", ("A11 = 2 A11",), LINEAR, ""),
        ("Z/7", ("A11 = 2 A11",), LINEAR, ""),
        ("Q[i]", ("A11 = [1+i] A11",), LINEAR, ""),
        ("Q[lambda]", ("A11 = [2*lambda] A11",), LINEAR, ""),
        ("Q[lambda]", ("B11 += [lambda] A11 ; A11 = [-2*lambda^3] A11",), LINEAR, ""),
        ("Q[lambda]", ("A11 = [1+lambda] A11",), LINEAR, "lambda + 1"),
        ("Q[lambda]", ("A11 = [1/lambda-lambda] A11",), LINEAR, "lambda^2 - 1"),
    ],
)
def test_what_must_be_divided_by_is_named_where_the_ring_has_no_inverse(
    ring: str, more: tuple[str, ...], verdict: str, divisor: str
) -> None:
    fate = over(ring, *more).fates[0]
    assert (fate.verdict, fate.divisor) == (verdict, divisor)
    if verdict == LINEAR and not divisor:
        assert "A" in over(ring, *more, *fate.restoring).restored
    if verdict == LINEAR and divisor:
        with pytest.raises(BilinearError, match="E20"):
            over(ring, *more, *fate.restoring)


@pytest.mark.parametrize(
    ("more", "divisor", "step"),
    [
        (("X = A11*B11", "A12 += X", "A11 = 2 A11"), "2", "A12 -= A11*B11"),
        (("X = A11*B11", "A12 += X", "B11 = 3 B11"), "3", "A12 -= A11*B11"),
        (("X = 2 B11 + 3 B21", "Y = A11*X", "A12 += Y", "B11 = X", "B21 = X"), "", "A12 -= A11*B11"),
        (("X = B11 + B21", "Y = A11*X", "A12 += Y", "B11 = 5 X", "B21 = B11"), "5", "A12 -= 1/5 A11*B11"),
    ],
)
def test_divisions_of_recomputed_products_are_named(more: tuple[str, ...], divisor: str, step: str) -> None:
    table = "scheme z <1,2,1;2> over Z\n  C11 = A11*B11 + A12*B21\nschedule s of z: C = A*B, temporaries X Y\n"
    lines = ("C11 = A11*B11", "C11 += A12*B21", *more)
    (schedule,) = parse_source(Source("x.bl", table + "".join(f"  stage {{ {line} }}\n" for line in lines))).schedules
    fate = fates(schedule)["A"]
    assert (fate.verdict, fate.divisor, fate.restoring[-1]) == (RECOMPUTE, divisor, step)


def test_no_step_is_hinted_that_the_ring_refuses() -> None:
    (failure,) = over("Z", "A11 = 2 A11", head="C = A*B, restores A B").failures
    assert failure.code == "E407" and failure.hints == ()
    assert failure.notes == ("A11 ends as 2*A11", "A can be had back where 2 can be divided by, which Z does not allow")
    (failure,) = over("Q", "A11 = 2 A11", head="C = A*B, restores A B").failures
    assert failure.hints == ("this brings A back: restore stage { A11 = 1/2 A11 }",)


def test_counterexamples_over_z_are_integers() -> None:
    """A11*(1 + 5*B11) tells A11 at every integer and at every matrix of integers, whose determinant is 1 modulo 5."""
    more = ("X = A11*B11", "A11 += 5 X")
    assert over("Q", *more).fates[0].verdict == LOST
    assert over("Z", *more).fates[0].verdict == UNDECIDED


def test_a_broken_promise_shows_the_two_inputs() -> None:
    (failure,) = over("Q", "X = A11*B11", "A11 = X", head="C = A*B, restores A, temporary X").failures
    assert failure.notes[:2] == ("A11 ends as A11*B11", "A is not determined at every input")
    assert failure.notes[2].startswith("one input: ") and failure.notes[4].startswith("both end with: ") and failure.hints == ()


def test_alpha_and_beta_may_be_zero() -> None:
    head = "C = alpha*A*B + beta*C, temporaries X Y"
    scaled = [step.replace("= A", "= [alpha] A") for step in CLASSICAL]
    first = [f"{step} + [beta] {step[:3]}" for step in scaled[:4]]
    lines = "".join(f"  stage {{ {step} }}\n" for step in (*first, *scaled[4:], "A11 = [beta] A11"))
    schedule = parse_source(Source("x.bl", f"schedule s of naive2x2: {head}\n{lines}")).schedules[0]
    found = fates(schedule)["A"]
    assert found.verdict == LOST
    assert "with alpha = 1 and beta = 0" in found.counterexample[0] or "beta = 0" in found.counterexample[0]


def test_a_broken_promise_names_the_stage_that_keeps_it() -> None:
    text = "schedule s of naive2x2: restores A\n  stage { A11 += A12 ; B11 += B12 }\n  stage { A11 -= A12 ; B11 -= B12 }\n"
    text += "".join(f"  stage {{ {step.replace(' = ', ' += ')} }}\n" for step in CLASSICAL) + "  stage { A21 += 2 A22 }\n"
    schedule = mark_first_writes(parse_source(Source("x.bl", text)).schedules[0])
    (failure,) = prove_schedule(schedule).failures
    assert failure.code == "E407"
    assert failure.hints == ("this brings A back: restore stage { A21 -= 2 A22 }",)


PRIME = 3
FIELD = np.array(list(itertools.product(range(PRIME), repeat=8)), dtype=np.int64)
"""Every input of 1 x 1 blocks: A11 to A22, then B11 to B22."""


def random_steps(generator: random.Random) -> list[str]:
    """A few steps that write blocks of A and B: forms, and products kept in X."""
    blocks = [f"{space}{i}{j}" for space in "AB" for i in (1, 2) for j in (1, 2)]
    lines = []
    for _ in range(generator.randint(1, 4)):
        target = generator.choice(blocks)
        if generator.random() < 0.5:
            left, right = (generator.choice([b for b in blocks if b[0] == side and b != target]) for side in "AB")
            lines += [f"X = {left}*{right}", f"{target} {generator.choice(['+=', '-=', '='])} X"]
        else:
            lines.append(f"{target} {generator.choice(['+=', '-=', '='])} {generator.choice([b for b in blocks if b != target])}")
    return lines


def in_the_field(lines: list[str]) -> tuple[dict[str, Any], ...]:
    """The values of all blocks for every input, run by a few lines of Python that know nothing of schedules."""
    names = [f"{space}{i}{j}" for space in "AB" for i in (1, 2) for j in (1, 2)]
    start = {name: FIELD[:, i] for i, name in enumerate(names)}
    state: dict[str, Any] = dict(start)
    for line in lines:
        target, operator, right = line.split(" ")
        value = state[right[:3]] * state[right[4:]] if "*" in right else state[right]
        old = 0 if operator == "=" else state[target]
        state[target] = (old - value if operator == "-=" else old + value) % PRIME
    return start, {name: state[name] for name in names}


def is_determined(side: str, start: dict[str, Any], end: dict[str, Any]) -> bool:
    """Whether no two of all inputs that differ in an operand end in one state."""
    weights = PRIME ** np.arange(8, dtype=np.int64)
    keys = np.stack(list(end.values()), axis=1) @ weights
    operand = np.stack([value for name, value in start.items() if name[0] == side], axis=1) @ weights[:4]
    order = np.argsort(keys, kind="stable")
    keys, operand = keys[order], operand[order]
    return not bool(np.any((keys[1:] == keys[:-1]) & (operand[1:] != operand[:-1])))


@pytest.mark.slow
def test_every_verdict_agrees_with_all_inputs_over_a_small_field() -> None:
    generator = random.Random(1)
    counts: dict[str, int] = {}
    table = "scheme z <2,2,2;8> over Z/3\n" + "".join(
        f"  M{i} = A{r}{p}*B{p}{c}\n" for i, (r, c, p) in enumerate(itertools.product((1, 2), repeat=3), 1)
    )
    table += "".join(f"  C{r}{c} = M{4 * r + 2 * c - 5} + M{4 * r + 2 * c - 4}\n" for r in (1, 2) for c in (1, 2))
    for _ in range(150):
        lines = random_steps(generator)
        body = "".join(f"  stage {{ {step} }}\n" for step in (*CLASSICAL, *lines))
        schedule = parse_source(Source("x.bl", f"{table}schedule s of z: C = A*B, temporaries X\n{body}")).schedules[0]
        proof = prove_schedule(schedule)
        if "E402" in {d.code for d in proof.failures}:
            continue
        assert proof.holds, proof.failures
        start, end = in_the_field(lines)
        for fate in proof.fates:
            counts[fate.verdict] = counts.get(fate.verdict, 0) + 1
            if fate.verdict in (LINEAR, RECOMPUTE):
                back = dict(end)
                executed(fate.restoring, back, "*")
                assert all(not np.any((back[x] - start[x]) % PRIME) for x in start if x[0] == fate.operand), (lines, fate)
            if fate.verdict != UNDECIDED:
                assert is_determined(fate.operand, start, end) == (fate.verdict != LOST), (lines, fate)
    assert min(counts.get(verdict, 0) for verdict in (RESTORED, LINEAR, RECOMPUTE, LOST)) >= 5, counts
    assert counts.get(UNDECIDED, 0) == 0, counts


def test_costs_and_shapes_of_msmes() -> None:
    loaded = load("msmes")
    assert loaded.schedule is not None
    proof = prove_schedule(mark_first_writes(loaded.schedule), loaded.scheme)
    assert proof.costs is not None and proof.shapes is not None
    assert (proof.costs.chain, proof.costs.widths, proof.costs.passes) == (3, (4, 3), 5)
    assert proof.costs.live_blocks == 10  # A11, A12, A21, B11, B12, B21 as sums, and C
    assert proof.shapes.statement == "" and proof.shapes.reasons == ()
    assert [stage.width for stage in proof.stages] == [4, 4, 2, 4, 3, 2, 4]
    kinds = {state.block: state.kind for state in proof.stages[-1].states}
    assert [kinds[b] for b in ("A11", "A22", "B21", "C11")] == ["restored", "original", "restored", "product"]
    assert proof.stages[1].products == ("M2", "M3", "M4", "M5")


@each(
    ("more", "statement"),
    [
        ((), ""),
        (("X = A11", "X = B11", "X = C11"), ""),
        (("A12 = A11*B11",), "only problems with K = N"),
        (("B12 = A11*B11",), "only problems with M = K"),
        (("A12 = B11",), "square problems only: M = K = N"),
        (("A12 = A11*B11", "B12 = A22*B22"), "square problems only: M = K = N"),
    ],
)
def test_shape_conditions(more: tuple[str, ...], statement: str) -> None:
    shapes = prove_schedule(with_steps(*more)).shapes
    assert shapes is not None and shapes.statement == statement
    assert bool(shapes.reasons) == bool(statement)


def test_a_temporary_may_have_a_shape() -> None:
    proof = prove_schedule(with_steps("X = A11", "X = C11", head="C = A*B, temporary X like A"))
    assert proof.shapes is not None and proof.shapes.statement == "only problems with K = N"
    assert proof.shapes.reasons == ("stage 10 leaves a block of C's size in X",)


def test_blocks_of_another_grid_are_compared_by_their_extents() -> None:
    text = "scheme x <1,2,1;2>\n  C11 = A11*B11 + A12*B21\nschedule s of x: C = A*B\n"
    text += "".join(f"  stage {{ {step} }}\n" for step in ("C11 = A11*B11", "A11 = A12*B21", "C11 += A11"))
    shapes = prove_schedule(parse_source(Source("x.bl", text)).schedules[0]).shapes
    assert shapes is not None and shapes.statement == "only problems with K/2 = N"


def proof_of(steps_: tuple[str, ...], head: str = "C = A*B, temporaries X Y") -> ScheduleProof:
    lines = "".join(f"  stage {{ {step} }}\n" for step in steps_)
    return prove_schedule(parse_source(Source("x.bl", f"schedule s of naive2x2: {head}\n{lines}")).schedules[0], load("naive2x2").scheme)


@each(
    ("lines", "told"),
    [
        (("X = Y", *CLASSICAL), "E405: Y is read before anything is written to it"),
        (("C11 += A11*B11",), "E405: C11 is read before anything is written to it"),
        (("X = B11", "C11 = X*B11"), "E402: stage 2: the left operand X is not a form over blocks of A"),
        (("X = A11*B11", "C11 = X*B11"), "E402: stage 2: the left operand X is not a form over blocks of A"),
        (("X = A11 ; X = A12", *CLASSICAL), "E401: hazard in stage 1: two steps write X"),
        (("C11 = A11*B11 ; C11 = A12*B21",), "E401: hazard in stage 1: two steps write C11"),
        (("C11 = A11*B11 ; C11 += A12*B21",), "E401: hazard in stage 1: two steps write C11"),
        (("A11 = A11*B11",), "E409: hazard in stage 1: A11 is written while a product reads it"),
        (("A11 = A12*B21 ; C11 = A11*B11",), "E409: hazard in stage 1: A11 is written while a product reads it"),
        (CLASSICAL[:7], "E406: s: C22 is not A*B"),
        (CLASSICAL[:3], "E406: s: nothing is written to C22"),
        (("X = A11*B12", *CLASSICAL, "C11 += X"), "E406: s: C11 is not A*B"),
    ],
)
def test_faults_of_schedules_that_scale_for_themselves(lines: tuple[str, ...], told: str) -> None:
    assert told in [f"{d.code}: {d.message}" for d in proof_of(tuple(lines)).failures]


def test_values_that_nothing_reads_are_told_where_the_result_is_wrong() -> None:
    (failure,) = proof_of(("X = A12*B22", *CLASSICAL[:5], *CLASSICAL[6:])).failures
    assert failure.message == "s: C12 is not A*B"
    assert failure.notes == ("the difference is -A12*B22", "nothing reads what the step at x.bl:2:11 writes to X")


def test_other_products_than_the_schemes_are_no_fault_where_c_is_right() -> None:
    split = ("X = A11 + A12", "C11 = X*B11", "X = B21 - B11", "C11 += A12*X", *CLASSICAL[1:4], *CLASSICAL[5:])
    proof = proof_of(split)
    assert proof.holds and proof.direct
    assert proof.stages[1].products == ("",)
    assert not proof_of(tuple(CLASSICAL)).direct
    wrong = proof_of((*split, "C11 += X"))
    assert "E403" in {d.code for d in wrong.failures} and not wrong.direct


@pytest.mark.parametrize(
    ("head", "lines", "why"),
    [
        ("C = A*B", ("C11 = A11*B11 ; C12 = A11*B12", *CLASSICAL[2:]), "A12*B21 in stage 4 adds to what C11 holds, which C = A*B does not"),
        ("C = A*B, temporary X", tuple(CLASSICAL), "every level needs memory of its own for X"),
        (
            "C = A*B",
            (*CLASSICAL, "A11 = A12"),
            "A11*B11 in stage 1 would overwrite its operand A11, which is still needed: s does not restore A",
        ),
        (
            "C = A*B + C",
            ("A11 += A12", "C11 += A11*B11 ; C12 += A11*B12", "A11 -= A12"),
            "two products of stage 2 share the operand A11, which an inner level writes",
        ),
    ],
)
def test_why_a_schedule_cannot_recurse_in_place(head: str, lines: tuple[str, ...], why: str) -> None:
    proof = proof_of(lines, head)
    assert not proof.recursive and proof.why_not == why


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ((), ""),
        ((1,), "A11*B11 in stage 2 adds to what C11 holds, which every inner level overwrites"),
        ((0, 0), "A11*B11 in stage 2 has 2 targets, and the schedule one result"),
    ],
)
def test_why_a_schedule_that_overwrites_c_cannot_recurse_in_place(more: tuple[int, ...], why: str) -> None:
    """C is lost in every inner level, so the products of the level above must overwrite a block each."""
    a, b, c = Block("A", 0, 0), Block("B", 0, 0), Block("C", 0, 0)
    stages = [ProductStage((Product(a, b, tuple(Target(c, 1, kept) for kept in factors)),)) for factors in ((0,), more) if factors]
    schedule = Schedule("s", "plain", 1, 1, 1, tuple(stages), in_place=True, restores=("A", "B"))
    assert why_not_recursive(schedule, ("A", "B")) == why


def test_the_example_of_the_language() -> None:
    text = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```bl\n(schedule careful (?:.*\n)*?)```", text, re.MULTILINE)
    proof = prove_schedule(parse_source(Source("x.bl", example)).schedules[0], load("naive2x2").scheme)
    assert proof.holds and proof.shapes is not None
    assert proof.shapes.statement == "only problems with K = N"
    assert [fate.verdict for fate in proof.fates] == [LOST, RESTORED]


def test_additions_to_one_block_may_stand_in_one_stage() -> None:
    body = "  stage { C11 += A11*B11 ; C11 += A12*B21 ; C12 += A11*B12 ; C12 += A12*B22 }\n"
    body += "  stage { C21 += A21*B11 ; C21 -= A22*B21 ; C22 += A21*B12 ; C22 += A22*B22 }\n"
    for text, right in ((body.replace("-=", "+="), True), (body, False)):
        schedule = parse_source(Source("x.bl", f"schedule s of naive2x2: C = A*B + C\n{text}")).schedules[0]
        proof = prove_schedule(schedule, load("naive2x2").scheme)
        assert proof.holds == right == computes_in_every_order(schedule)
        assert proof.stages[0].contended == ("C11", "C12")
        assert not right or proof.why_not == "two products of stage 1 write C11, which every inner level uses as its own C"
