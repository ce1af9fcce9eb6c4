"""The plan of a chain as text: the chosen order, two usual ones for comparison, and its products."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise

from bilinear.planner.chains import MULTIPLICATIONS, ChainPlan
from bilinear.reporting.plans import bytes_text
from bilinear.reporting.table import aligned
from bilinear.visible import visible_lines

FORMAT = "bilinear-chain/1"
ORDERS = ("", "order", "ms", "multiplications", "memory", "ratio")
PRODUCTS = ("product", "shape", "ms", "plan", "workspace", "intermediates")


def chain_json(plan: ChainPlan) -> str:
    """The plan of a chain as JSON text; matrices are counted from 0."""
    return json.dumps({"format": FORMAT, **asdict(plan)}, indent=1) + "\n"


def chain_table(plan: ChainPlan) -> str:
    """The orders with their figures, then the products of the chosen one, in the order in which they run."""
    usual = ("left to right", plan.left_to_right), ("fewest multiplications", plan.fewest_multiplications)
    orders = [
        (name, own.text, _ms(own.seconds), own.multiplications, bytes_text(own.peak), f"{plan.ratio(own):.2f}x")
        for name, own in (("chosen", plan.chosen), *usual)
    ]
    products = [
        (
            f"{_name(step.left)} {_name(step.right)}",
            f"{step.m}x{step.k}x{step.n}",
            _ms(step.seconds),
            step.plan,
            bytes_text(step.workspace),
            bytes_text(step.held),
        )
        for step in plan.chosen.steps
    ]
    return visible_lines([_title(plan), "", *aligned(orders, ORDERS), "", *aligned(products, PRODUCTS)])


def _title(plan: ChainPlan) -> str:
    shapes = " ".join(f"{m}x{n}" for m, n in pairwise(plan.extents))
    where = "multiplications counted: the planner has no times here" if plan.by == MULTIPLICATIONS else f"{plan.device}, predicted"
    most = "" if plan.workspace is None else f", at most {bytes_text(plan.workspace)}"
    return f"{shapes}, {plan.dtype} ({where}{most})"


def _name(span: tuple[int, int]) -> str:
    """A part of a chain: `A2`, or `A2..A4`."""
    first, last = span
    return f"A{first + 1}" if first == last else f"A{first + 1}..A{last + 1}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"
