"""The library's measured points: which of them count, what they foretell, and how they are made of microseconds."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace
from math import exp, log, log2, prod
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from bilinear.planner.device import LEAST_LAUNCH, Device
from bilinear.planner.device_files import load_device
from bilinear.planner.library import thin_library
from bilinear.planner.library_points import (
    ANOTHER_ALIGNMENT,
    ANOTHER_KERNEL,
    ANOTHER_ORDER,
    ANOTHER_ORDER_IF_BRIEF,
    BRIEF,
    CUBLAS,
    CUBLASLT,
    FITTED,
    FLAT,
    MOST_APART,
    NEAR,
    NEAREST,
    ORDERS,
    UNKNOWN,
    Kernels,
    LibraryPoints,
    Measured,
    Shape,
    library_points,
)
from bilinear.planner.plan import LIBRARY
from bilinear.planner.problem import Problem

H200 = load_device("h200")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "thin-auto-h200.json"
KERNELS = "55.11.31", "55.15.31", "20.16.28"


def drawn(seed: int, count: int) -> list[Measured]:
    draw = random.Random(seed)
    return [
        Measured(
            (draw.randint(1, 64), draw.randint(1, 999), draw.randint(1, 99999)),
            draw.choice(ORDERS),
            (draw.choice(KERNELS), draw.choice(KERNELS)),
            draw.uniform(1, 2),
            draw.uniform(1, 2),
        )
        for _ in range(count)
    ]


def lines(shape: Shape, order: str) -> tuple[int, int, int]:
    m, n, k = shape
    return m if order[0] == "N" else k, k if order[1] == "N" else n, m


def weighted(
    known: list[Measured], shape: Shape, order: str, lanes: int, kernels: Kernels | None, count: int
) -> list[tuple[float, Measured]]:
    """The nearest points and their weights, one by one."""

    def distance(one: Measured) -> float:
        found = sum(log2(a / b) ** 2 for a, b in zip(one.shape, shape, strict=True))
        found += (ANOTHER_ORDER_IF_BRIEF if prod(shape) < BRIEF else ANOTHER_ORDER) * (one.order != order)
        both = zip(lines(one.shape, one.order), lines(shape, order), strict=True)
        found += ANOTHER_ALIGNMENT * sum((a % lanes == 0) != (b % lanes == 0) for a, b in both)
        return found + (0 if kernels is None else ANOTHER_KERNEL * sum(a != b for a, b in zip(one.kernels, kernels, strict=True)))

    near = sorted(known, key=distance)[:count]
    weights = [1 / (distance(one) + NEAR) for one in near]
    return [(weight / sum(weights), one) for weight, one in zip(weights, near, strict=True)]


def on_plane(near: list[tuple[float, Measured]], shape: Shape, logs: list[float]) -> float:
    """The plane through weighted logarithms, by least squares, at a shape; within the logarithms."""
    rows = [[weight**0.5 * x for x in (1.0, *(log2(a / b) for a, b in zip(p.shape, shape, strict=True)))] for weight, p in near]
    flat = [[0.0] * i + [(FLAT / len(near)) ** 0.5] + [0.0] * (3 - i) for i in (1, 2, 3)]
    wanted = [weight**0.5 * x for (weight, _), x in zip(near, logs, strict=True)] + [0.0] * 3
    found = np.linalg.lstsq(np.array(rows + flat), np.array(wanted))[0][0]
    return min(max(float(found), min(logs)), max(logs))


@pytest.mark.parametrize("lanes", [2, 4])
def test_the_nearest_points_count(lanes: int) -> None:
    known = drawn(1, 200)
    points = library_points(known, lambda shape: 1.0)
    for one in drawn(2, 40):
        for kernels in (None, one.kernels):
            near = weighted(known, one.shape, one.order, lanes, kernels, FITTED)
            times = points.times(one.order, one.shape, lanes, kernels)
            assert times[CUBLAS] == pytest.approx(exp(on_plane(near, one.shape, [log(p.cublas) for _, p in near])), rel=0.01)
            assert times[CUBLASLT] == pytest.approx(exp(on_plane(near, one.shape, [log(p.cublaslt) for _, p in near])), rel=0.01)
        near = weighted(known, one.shape, one.order, lanes, one.kernels, NEAREST)
        apart = sum(weight * max(-MOST_APART, min(MOST_APART, log(p.cublaslt / p.cublas))) for weight, p in near)
        if abs(apart) > 0.02:
            assert points.faster(one.order, one.shape, lanes, one.kernels) == (CUBLASLT if apart < 0 else CUBLAS)


def test_times_are_multiples_of_the_least() -> None:
    rates = H200.thin_rates("float32")
    assert rates is not None
    one = Measured((8, 10**7, 8), "NN", ("a", "b"), 500.0, 250.0)
    least = rates.least_us(one.shape, 4, H200.bandwidth)
    assert least == pytest.approx(LEAST_LAUNCH + (2 * 8e7 + 64) * 4 / 4.28e6)
    points = library_points([one], lambda shape: rates.least_us(shape, 4, H200.bandwidth))
    assert points.cublas == (float(f"{500 / least:.3g}"),) and points.kernels == ("a", "b")
    assert points.times("NN", one.shape, 4) == pytest.approx({CUBLAS: 500 / least, CUBLASLT: 250 / least}, rel=0.01)
    by_arithmetic = rates.least_us((4096, 4096, 4096), 4, H200.bandwidth)
    assert by_arithmetic == pytest.approx(LEAST_LAUNCH + 2 * 4096**3 / (rates.pipes * 1e6))


def test_points_with_one_time_for_both_calls_do_not_choose() -> None:
    same = Measured((8, 1000, 8), "NN", ("a", "b"), 2.0, 2.0)
    others = [same._replace(shape=(8, 2_000, 8), cublaslt=1.0), same._replace(shape=(8, 1_000_000, 8), cublas=1.0)]
    assert library_points([same], lambda shape: 1.0).faster("NN", (8, 1000, 8), 4, ("a", "b")) is None
    points: LibraryPoints = library_points([same, *others], lambda shape: 1.0)
    assert points.faster("NN", (8, 1000, 8), 4, ("a", "b")) == CUBLASLT
    assert points.faster("NN", (8, 900_000, 8), 4, ("a", "b")) == CUBLAS


def test_a_point_of_unknown_kernels_is_farther_than_one_of_the_same_kernels_and_nearer_than_one_of_others() -> None:
    shape, kernels = (64, 300, 32), KERNELS[:2]
    same, unknown = Measured(shape, "NN", kernels, 2.0, 1.0), Measured(shape, "NN", (UNKNOWN, UNKNOWN), 1.0, 2.0)
    other = Measured(shape, "NN", (KERNELS[2], KERNELS[2]), 2.0, 1.0)
    assert library_points([same, unknown], lambda shape: 1.0).faster("NN", shape, 4, kernels) == CUBLASLT
    assert library_points([other, unknown], lambda shape: 1.0).faster("NN", shape, 4, kernels) == CUBLAS


def test_the_order_of_both_operands_counts_more_than_an_octave() -> None:
    """For short float products the slow call changes with the order: cuBLAS at NN and TT, cublasLt at NT."""
    near, far = Measured((64, 300, 32), "NT", KERNELS[:2], 1.0, 3.0), Measured((32, 300, 40), "NN", KERNELS[:2], 2.0, 1.0)
    points = library_points([near, far], lambda shape: 1.0)
    assert points.faster("NN", (64, 300, 32), 4, KERNELS[:2]) == CUBLASLT


def without(device: Device, dtype: str, shapes: set[Shape]) -> Device:
    """The description without its points of these shapes."""
    rates = device.thin_rates(dtype)
    assert rates is not None
    points = rates.library
    kept = [i for i, shape in enumerate(zip(points.m, points.n, points.k, strict=True)) if shape not in shapes]
    named = (one.name for one in fields(points) if one.name != "kernels")
    columns = {name: tuple(getattr(points, name)[i] for i in kept) for name in named}
    own = replace(rates, library=replace(points, **columns))
    return replace(device, thin=tuple((name, own if name == dtype else others) for name, others in device.thin))


def test_the_shipped_points_predict_the_times_of_other_shapes() -> None:
    """Each run's shapes are left out first: to 15 % in the median, from 20 microseconds on."""
    off = []
    run = [row["shape"] for row in json.loads(RESULTS.read_text())["rows"]]
    shapes = {shape for m, k, n in run for shape in ((m, n, k), (n, m, k))}
    others = without(without(H200, "float32", shapes), "float64", shapes)
    for row in json.loads(RESULTS.read_text())["rows"]:
        (m, k, n), dtype, us = row["shape"], row["dtype"], min(row["us"]["cublas"], row["us"]["cublaslt"])
        if row["name"] or us < 20:
            continue
        by_column = tuple(name for name, order in zip("ABC", row["orders"], strict=True) if order == "F")
        found = thin_library(Problem(m, k, n, dtype, column_major=by_column), others)
        assert found is not None and found.ms is not None and found.strategy == LIBRARY
        off.append(abs(log(found.ms * 1e3 / us)))
    assert len(off) > 40 and median(off) < 0.15
