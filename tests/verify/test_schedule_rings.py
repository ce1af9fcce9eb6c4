"""Schedules over other rings than Q are run in their ring."""

from __future__ import annotations

import pytest

from bilinear.frontend import parse_source
from bilinear.ir.schedule import AnySchedule
from bilinear.ir.scheme import Scheme
from bilinear.passes.order_products import mark_first_writes
from bilinear.passes.scheme_to_schedule import scheme_to_schedule
from bilinear.source import Source
from bilinear.verify.facts import LINEAR, LOST, RESTORED
from bilinear.verify.schedule import ScheduleProof, prove_schedule

TABLES = {
    "Z/2": "  M1: 1 | 1 0 | 1 1\n  M2: 1 | 1 1 | 0 1\n",
    "Z/7": "  M1: 1/2 | 3 0 | 3 0\n  M2: 2 | 0 1 | 0 1/2\n",
    "Q[sqrt(3)]": "  M1: sqrt(3) | 1 0 | sqrt(3)/3 0\n  M2: 1-sqrt(3) | 0 1 | 0 -1/2-sqrt(3)/2\n",
    "Q[i]": "  M1: i | 1 0 | -i 0\n  M2: 1+i | 0 1 | 0 1/2-i/2\n",
    "Q[lambda]": "  M1: lambda | 1 lambda | lambda^-1 0\n  M2: 1 | 0 1-lambda | 0 1\n",
}


def scheme_over(ring: str) -> Scheme:
    return parse_source(Source("x.bl", f"scheme x <1,1,2;2> over {ring}\n{TABLES[ring]}")).schemes[0]


def prove(schedule: AnySchedule, scheme: Scheme) -> ScheduleProof:
    return prove_schedule(mark_first_writes(schedule), scheme)


@pytest.mark.parametrize("ring", TABLES)
def test_the_plain_schedule_of_a_scheme(ring: str) -> None:
    scheme = scheme_over(ring)
    proof = prove(scheme_to_schedule(scheme), scheme)
    assert proof.holds, proof.failures
    assert [product for stage in proof.stages for product in stage.products] == ["M1", "M2"]


def written(ring: str, body: str, head: str = "") -> tuple[AnySchedule, Scheme]:
    module = parse_source(Source("x.bl", f"scheme x <1,1,2;2> over {ring}\n{TABLES[ring]}schedule s of x{head}\n{body}"))
    return module.schedules[0], module.schemes[0]


@pytest.mark.parametrize(
    ("ring", "body"),
    [
        ("Z/2", "  stage { B12 -= B11 }\n  stage { C11, -C12 += A11*B11 ; C12 += A11*B12 }\n"),
        ("Z/7", "  stage { B12 = 15 B12 ; B11 = 1/2 B11 }\n  stage { -5 C11 += A11*B11 ; C12 += A11*B12 }\n"),
        ("Q[sqrt(3)]", "  stage { B12 = [sqrt(3)] B12 }\n  stage { C11 += A11*B11 ; [sqrt(3)/3] C12 += A11*B12 }\n"),
        ("Q[i]", "  stage { B12 = [1+i] B12 ; B11 = [i] B11 }\n  stage { -[i] C11 += A11*B11 ; [1/2-i/2] C12 += A11*B12 }\n"),
    ],
)
def test_schedules_that_are_right_in_their_ring(ring: str, body: str) -> None:
    schedule, scheme = written(ring, body)
    right = prove(schedule, scheme)
    wrong = prove(written(ring, body.replace("A11*B12", "A11*B11"))[0], scheme)
    assert right.holds, right.failures
    assert "E406" in {d.code for d in wrong.failures}


def test_signs_do_not_matter_in_characteristic_two() -> None:
    body = "  stage { B12 += B11 }\n  stage { C11, C12 += A11*B11 ; C12 += A11*B12 }\n  restore stage { B12 += B11 }\n"
    schedule, scheme = written("Z/2", body, ": in-place, restores A B")
    assert prove(schedule, scheme).holds
    over_z, plain = written("Z/7", body, ": in-place, restores A B")
    assert {d.code for d in prove(over_z, plain).failures} >= {"E406", "E407"}


def test_recovery_in_a_ring() -> None:
    body = "  stage { C11 = A11*B11 }\n  stage { C12 = A11*B12 }\n"
    for ring, step, verdict in (
        ("Z/2", "B11 = 3 B11 + 2 B12", RESTORED),
        ("Z/7", "B11 = 7 B11 + 2 B12", LOST),
        ("Z/7", "B11 = 3 B11", LINEAR),
        ("Q[sqrt(3)]", "B11 = [1-sqrt(3)] B11", LINEAR),
        ("Q[i]", "B11 += [i] B12 ; B12 -= [i] B11", LOST),
    ):
        schedule, scheme = written(ring, f"{body}  stage {{ {step} }}\n", ": C = A*B")
        fate = prove(schedule, scheme).fates[1]
        assert fate.verdict == verdict
        if verdict == LINEAR:
            again, _ = written(ring, f"{body}  stage {{ {step} }}\n  stage {{ {' ; '.join(fate.restoring)} }}\n", ": C = A*B, restores B")
            assert prove(again, scheme).holds
        if verdict == LOST:
            assert len(fate.counterexample) == 3 and fate.lost_dimensions == 1
