"""check: bound the error of a product that lies in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli.options import Json
from bilinear.errors import fail

if TYPE_CHECKING:
    from bilinear.ir.matrix import Array


def check(
    a: Annotated[Path, typer.Argument(metavar="A", help="A .npy file: (..., m, k).")],
    b: Annotated[Path, typer.Argument(metavar="B", help="A .npy file: (..., k, n).")],
    c: Annotated[Path, typer.Argument(metavar="C", help="A .npy file: what should be alpha*A*B + beta*BEFORE.")],
    tolerance: Annotated[
        float | None, typer.Option(help="The largest error that passes, in units of |A| |B|; without one, none fails.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="The probability with which the bound holds.")] = 1 - 1e-6,
    vectors: Annotated[int | None, typer.Option(help="Random vectors; more make the bound tighter (default: 16).")] = None,
    seed: Annotated[int, typer.Option(help="Which vectors.")] = 0,
    alpha: Annotated[float, typer.Option(help="The factor of A*B.")] = 1,
    beta: Annotated[float, typer.Option(help="The factor of BEFORE.")] = 0,
    before: Annotated[Path | None, typer.Option(help="A .npy file: C before the multiply.")] = None,
    as_json: Json = False,
) -> None:
    """Bound the error of a product in .npy files by random projections; they are read in panels, each once."""
    from bilinear.runtime.check import check as check_arrays

    x, y, z = map(_mapped, (a, b, c))
    factors = [int(value) if value.is_integer() else value for value in (alpha, beta)]
    old = None if before is None else _mapped(before)
    given = {"alpha": factors[0], "beta": factors[1], "before": old, "tolerance": tolerance, "confidence": confidence}
    found = check_arrays(x, y, z, **given, vectors=vectors, seed=seed)  # type: ignore[arg-type]
    if as_json or found.passed is not False:
        print(json.dumps(found.to_json(), indent=1) if as_json else found)
    if found.passed is False:
        found.require()


def _mapped(path: Path) -> Array:
    """A .npy file as an array that is read where it is used (E705)."""
    import numpy as np

    try:
        with open(path, "rb") as file:
            np.lib.format.read_magic(file)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise fail("E705", f"{str(path)[:200]!r} is no .npy file that can be read: {reason}", "write one with numpy.save") from None
