"""`matmul` over the ranks of a communicator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from bilinear.distributed.agreement import Told
from bilinear.distributed.connection import Connection, connected
from bilinear.distributed.decompose import decompose
from bilinear.distributed.distributions import Distribution, Pieces, Slab
from bilinear.distributed.plan import Extents, Plan
from bilinear.distributed.rank import steps_of
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array
from bilinear.ir.scheme import Scheme
from bilinear.lowering.ready import ready
from bilinear.runtime.arrays import adopt, kind_of
from bilinear.runtime.matmul import matmul as multiply_here
from bilinear.runtime.named import algorithm_as_it_is
from bilinear.version import __version__

if TYPE_CHECKING:
    from mpi4py import MPI

P = TypeVar("P")
CLASSICAL = "2d"
KINDS = "iufc"
"""NumPy's letters of the element types that are multiplied."""
TIMEOUT = 20.0
"""Seconds."""


@dataclass(frozen=True)
class Asked:
    """What a call asks for beside its pieces."""

    shape: Extents
    distributions: tuple[Distribution, Distribution, Distribution]
    decomposition: str | Loaded = CLASSICAL
    levels: int | Literal["auto"] = "auto"
    memory: int | None = None
    algorithm: str = "auto"
    local_levels: int | Literal["auto"] = "auto"


def matmul(
    a: Array,
    b: Array,
    *,
    shape: Extents,
    distributions: Distribution | Sequence[Distribution],
    decomposition: str | Loaded = CLASSICAL,
    levels: int | Literal["auto"] = "auto",
    memory: int | None = None,
    algorithm: str = "auto",
    local_levels: int | Literal["auto"] = "auto",
    comm: MPI.Intracomm | None = None,
    timeout: float = TIMEOUT,
) -> Array:
    """This rank's piece of C = A B, a new array; every rank of `comm` (an mpi4py communicator, by default all processes) must call.

    `shape` is (m, k, n) of the whole product, m x k by k x n. `distributions` say how A and B lie and how C is to lie, one for each or one
    for all: `Slab.X`, `Slab.Y`, `BlockNonCyclic`, `BlockCyclic`. `a` and `b` are this rank's pieces: matrices of NumPy, CuPy or any library
    that speaks DLPack, of one type of integers or floating-point numbers. They are not written. C has their type.

    `decomposition` is how the product is spread over the ranks: "2d" computes C in a tile a rank, the classical way; the name or path of a
    scheme multiplies blocks by it, `levels` of it at once, by default the fewest with a product for each rank. `algorithm` and
    `local_levels` are those of `bilinear.matmul`, for the products on each rank. `memory` is the most bytes that a rank may take beside its
    pieces; as many depth-first levels, or panels of "2d", as that asks for are added.

    The ranks first agree that all call the same. `timeout` is how many seconds they wait for each other there. Where they differ, all raise
    the same `BilinearError` (E763, E767), and so where the arguments are wrong (E528, E760 to E762, and what `load` raises). If a rank does
    not call (E765), fails, ends or is not heard of for 20 s (E764), all others raise that. The communicator cannot be used any more then,
    and the process ends with exit code 1. Raises E766 if mpi4py is not usable.
    """
    connection = connected(comm, timeout)
    three = (distributions,) * 3 if not isinstance(distributions, Sequence) else tuple(distributions)
    return run(connection, a, b, Asked(shape, three, decomposition, levels, memory, algorithm, local_levels), timeout)  # type: ignore[arg-type]


def run(connection: Connection, a: Array, b: Array, asked: Asked, timeout: float) -> Array:
    """`matmul` on a connection."""

    def planned() -> tuple[Plan, str]:
        plan, digest = plan_for(asked, str(a.dtype), connection.comm.size)
        _check_pieces(plan, connection.comm.rank, a, b)
        return plan, digest

    plan = agreed(connection, _facts(asked, a), planned, timeout)
    kind = kind_of(a, b)
    left, right = adopt(a, kind), adopt(b, kind)
    multiply = partial(multiply_here, algorithm=asked.algorithm, levels=asked.local_levels)
    return kind.give_back(connection.run(steps_of(plan, connection.comm.rank, left, right, multiply)))


def agreed(connection: Connection, facts: dict[str, str], planned: Callable[[], tuple[P, str]], timeout: float) -> P:
    """The plan, after all ranks have agreed on the facts and on its digest.

    Raises the same `BilinearError` on all ranks: E763, E765, E767, or why none can take part.
    """
    plan = None
    try:
        plan, digest = planned()
        told = Told({**facts, "the plan": digest})
    except (BilinearError, AttributeError, TypeError, ValueError, OSError) as error:
        refused = error if isinstance(error, BilinearError) else fail("E767", f"{type(error).__name__}: {error}")
        told = Told(facts, refused.diagnostics[0])
    connection.agree(told, timeout)
    assert plan is not None, "a rank that cannot take part is told so"
    return plan


def _facts(asked: Asked, a: Array) -> dict[str, str]:
    """What must be the same on all ranks, as text."""
    values: dict[str, object] = {
        "shape": asked.shape,
        "distributions": asked.distributions,
        "decomposition": name_of(asked.decomposition),
        "levels": asked.levels,
        "memory": asked.memory,
        "algorithm": asked.algorithm,
        "local_levels": asked.local_levels,
    }
    return said(a, values)


def said(a: Array, values: dict[str, object]) -> dict[str, str]:
    """Facts as text, after the version and the element type."""
    own = {"the version of bilinear": __version__, "the element type": getattr(a, "dtype", type(a).__name__)}
    return {name: str(value) for name, value in (own | values).items()}


def name_of(decomposition: str | Loaded) -> str:
    """A decomposition in words."""
    return decomposition if isinstance(decomposition, str) else decomposition.scheme.name


def scheme_named(decomposition: str | Loaded) -> Scheme | None:
    """The scheme of a decomposition, None for the classical one. Raises what `load` raises."""
    if decomposition == CLASSICAL:
        return None
    loaded = algorithm_as_it_is(decomposition) if isinstance(decomposition, str) else decomposition
    return loaded.scheme


def plan_for(asked: Asked, dtype: str, ranks: int) -> tuple[Plan, str]:
    """The plan of a call on so many ranks, and a digest of it. Raises `BilinearError`."""
    if len(asked.distributions) != 3:
        raise fail("E761", f"{len(asked.distributions)} distributions", "give those of A, B and C, or one for all")
    scheme = scheme_named(asked.decomposition)
    levels = None if asked.levels == "auto" else asked.levels
    if levels is not None and (not isinstance(levels, int) or isinstance(levels, bool) or levels < 1):
        raise fail("E760", f"levels={levels!r} is no positive integer", "give the levels of the scheme, or 'auto'")
    if asked.memory is not None and (not isinstance(asked.memory, int) or asked.memory < 0):
        raise fail("E762", f"memory={asked.memory!r} is no number of bytes", "give an integer of at least 0, or None")
    return _planned(tuple(asked.shape), ranks, tuple(asked.distributions), scheme, levels, asked.memory, dtype)


@lru_cache(maxsize=16)
def _planned(
    shape: Extents,
    ranks: int,
    distributions: tuple[Distribution, Distribution, Distribution],
    scheme: Scheme | None,
    levels: int | None,
    memory: int | None,
    dtype: str,
) -> tuple[Plan, str]:
    if scheme is not None:
        scheme = ready(scheme, np.dtype(dtype))
    plan = decompose(shape, ranks, distributions, scheme, levels, memory, np.dtype(dtype).itemsize)
    tables = [level.tables for level in plan.levels]
    return plan, sha256(repr((tables, plan.home, plan.form, plan.tasks)).encode()).hexdigest()[:16]


def home(
    shape: Extents, ranks: int, decomposition: str | Loaded, *, levels: int | Literal["auto"] = "auto", dtype: str = "float64"
) -> tuple[Pieces, Pieces, Pieces]:
    """The distributions of A, B and C from which only factors and products travel: a scheme's sums are computed where the matrices lie.

    Each rank holds some rows of each block of the scheme. The arguments are those of `matmul`. Raises what it raises for them.
    """
    plan, _ = plan_for(Asked(shape, (Slab.X, Slab.X, Slab.X), decomposition, levels), dtype, ranks)
    return Pieces(plan.home[0]), Pieces(plan.home[1]), Pieces(plan.home[2])


def _check_pieces(plan: Plan, rank: int, a: Array, b: Array) -> None:
    """Refuse (E767) pieces that are not what the distributions say."""
    for name, piece, spread in (("A", a, plan.given[0]), ("B", b, plan.given[1])):
        if piece.dtype != a.dtype:
            raise fail("E767", f"a piece of {name} of {piece.dtype}, and one of A of {a.dtype}", "A and B are of one type")
        check_piece(name, piece, spread[rank].shape)


def check_piece(name: str, piece: Array, shape: tuple[int, int]) -> None:
    """Refuse (E767) a piece that is not what its distribution says."""
    if np.dtype(piece.dtype).kind not in KINDS:
        raise fail("E767", f"a piece of {name} of {piece.dtype}", "give integers or floating-point numbers")
    if tuple(piece.shape) != shape:
        expected = " x ".join(map(str, shape))
        raise fail("E767", f"its piece of {name} has the shape {tuple(piece.shape)}, by the distribution it is {expected}")
