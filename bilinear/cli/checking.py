"""check: bound the error of a product that lies in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.answers import Json, answer, file_of, in_place_of_text, limit_option, problem_option
from bilinear.cli.common import waiting
from bilinear.errors import fail
from bilinear.places import require_files
from bilinear.reading import open_input
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.ir.matrix import Array


def check(
    a: Annotated[Path, typer.Argument(metavar="A", help="A .npy file: (..., m, k).")],
    b: Annotated[Path, typer.Argument(metavar="B", help="A .npy file: (..., k, n).")],
    c: Annotated[Path, typer.Argument(metavar="C", help="A .npy file: what should be alpha*A*B + beta*BEFORE.")],
    tolerance: Annotated[
        float | None, limit_option(help="The largest error that passes, in units of |A| |B|; without one, none fails.")
    ] = None,
    confidence: Annotated[float, limit_option(help="The probability with which the bound holds.")] = 1 - 1e-6,
    vectors: Annotated[int | None, limit_option(help="Random vectors; more make the bound tighter (default: 16).")] = None,
    seed: Annotated[int, limit_option(help="Which vectors.")] = 0,
    alpha: Annotated[float, problem_option(help="The factor of A*B.")] = 1,
    beta: Annotated[float, problem_option(help="The factor of BEFORE.")] = 0,
    before: Annotated[Path | None, problem_option(help="A .npy file: C before the multiply.")] = None,
    json_file: Json = None,
) -> None:
    """Bound the error of a product in .npy files by random projections; they are read in panels, each once."""
    from bilinear.runtime.check import check as check_arrays

    require_files(file_of(json_file), unread=(str(path) for path in (a, b, c, before) if path is not None))
    x, y, z = map(_mapped, (a, b, c))
    factors = [int(value) if value.is_integer() else value for value in (alpha, beta)]
    old = None if before is None else _mapped(before)
    given = {"alpha": factors[0], "beta": factors[1], "before": old, "tolerance": tolerance, "confidence": confidence}
    with waiting("checking"):
        found = check_arrays(x, y, z, **given, vectors=vectors, seed=seed)  # type: ignore[arg-type]

    def data() -> str:
        return json.dumps(found.to_json(), indent=1)

    if found.passed is not False or in_place_of_text(json_file):
        answer(json_file, data, lambda: str(found))
    elif json_file is not None:
        write_file(json_file, data())
    if found.passed is False:
        found.require()


def _mapped(path: Path) -> Array:
    """A .npy file as an array that is read when it is used (E705)."""
    import numpy as np

    try:
        with open_input(path) as file:
            np.lib.format.read_magic(file)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a header is text of Python, in which NumPy meets errors of many kinds
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E705", f"{str(path)[:200]!r} is not a .npy file that can be read: {reason}", "write one with numpy.save") from None
