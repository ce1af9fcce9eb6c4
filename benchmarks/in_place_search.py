"""In-place schedules found for the shipped schemes and for published ones: product stages, additions, traffic, seconds.

    python benchmarks/in_place_search.py [--json RESULT.json] [--effort N] [NAME ...]

Names are shipped algorithms, or parts of the paths of published tables beside the checkout (BILINEAR_SCHEMES).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from common import parser_of, save
from published import published

from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.schedule import AnySchedule, LinearStage, ProductStage, Schedule
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import runnable
from bilinear.passes.fuse_linear_stages import fuse_linear_stages
from bilinear.scheduling.in_place.find import find_in_place
from bilinear.scheduling.in_place.partitions import StageProgress
from bilinear.verify.schedule import prove_schedule

SHIPPED = ("naive2x2", "strassen", "winograd", "hopcroft_kerr", "laderman")
PUBLISHED = (
    "alpha_tensor/2x3x4_m20",
    "ZT/2x4x4_m26",
    "alpha_tensor/3x3x5_m36",
    "smirnov336-40-960",
    "ZT/4x4x4_m49",
    "addition_reduced_ZT/5x5x5_m93",
)
VARIANTS: dict[str, dict[str, Any]] = {
    "restore": {},
    "consume": {"consume": True},
    "1+1 blocks": {"temporaries": 1},
    "1+1, preserve": {"temporaries": 1, "keep": ("A", "B")},
}
"""The last two have one temporary for sums of A and one for sums of B."""
OVERWRITING: dict[str, dict[str, Any]] = {
    "overwrite": {},
    "overwrite, preserve A": {"keep": ("A",)},
    "overwrite, 1+1 blocks": {"temporaries": 1},
    "overwrite, 1+1, preserve": {"temporaries": 1, "keep": ("A", "B")},
}
"""C = A*B with blocks of C as scratch; for schemes of less than 50 products."""
ROW = "{:<26} {:<12} {:<24} {:>14} {:>10} {:>10} {:>8} {:>7}"


def main() -> None:
    """Search, print the table, and write the JSON."""
    parser = parser_of(__doc__)
    parser.add_argument("names", nargs="*", default=[*SHIPPED, *PUBLISHED])
    parser.add_argument("--effort", type=int, default=1)
    arguments = parser.parse_args()
    print(ROW.format("scheme", "format", "variant", "product stages", "additions", "blocks", "seconds", "proved"))
    rows = []
    for name in arguments.names:
        for row in measured(_scheme(name), arguments.effort):
            rows.append(row)
            stages = f"{row['product_stages']} (>= {row['fewest']})"
            tail = (f"{row['seconds']:.1f}", str(row["proved"]))
            print(
                ROW.format(row["scheme"], row["format"], row["variant"], stages, row["additions"], row["blocks_moved"], *tail), flush=True
            )
    if arguments.json is not None:
        save("in_place_search", rows, arguments.json)


def measured(scheme: Scheme, effort: int) -> Iterator[dict[str, Any]]:
    """One row a variant; one product at a time only for the small schemes."""
    overwriting = {name: options | {"overwrite": True} for name, options in OVERWRITING.items() if scheme.rank < 50}
    for variant, options in (VARIANTS | overwriting).items():
        told: list[StageProgress] = []
        begin = time.perf_counter()
        try:
            schedule = find_in_place(scheme, effort=effort, progress=told.append, **options)
        except BilinearError:
            continue  # nothing of this kind was found
        seconds = time.perf_counter() - begin
        yield _row(scheme, variant, schedule, told[-1], seconds)


def _row(scheme: Scheme, variant: str, schedule: AnySchedule, told: StageProgress | None, seconds: float) -> dict[str, Any]:
    """What was found; the search says the counts of stages and traffic, for an overwriting schedule has its stages cut into colours."""
    maps = [m for stage in schedule.stages if isinstance(stage, LinearStage) for m in stage.maps]
    sums = schedule if isinstance(schedule, Schedule) else schedule.implied(schedule.stages, schedule.workspaces)
    fused = [m for stage in fuse_linear_stages(sums).stages if isinstance(stage, LinearStage) for m in stage.maps]
    widths = [len(stage.products) for stage in schedule.stages if isinstance(stage, ProductStage)]
    proof = prove_schedule(runnable(schedule) if isinstance(schedule, Schedule) else schedule, scheme)
    shapes = proof.shapes.statement if proof.shapes is not None else ""
    return {
        "scheme": scheme.name,
        "format": scheme.format,
        "variant": variant,
        "product_stages": told.stages if told else len(widths),
        "fewest": told.fewest if told else scheme.rank,
        "widths": widths,
        "additions": sum(m.map.additions for m in maps),
        "blocks_moved": told.traffic if told else sum(len(m.sources) + len(m.targets) for m in fused),
        "seconds": round(seconds, 2),
        "proved": proof.holds,
        "shapes": shapes,
    }


def _scheme(name: str) -> Scheme:
    if name in SHIPPED:
        return load(name).scheme
    return next(read for path, read in published().items() if name in path)()


if __name__ == "__main__":
    main()
