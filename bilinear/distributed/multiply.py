"""The multiply over the ranks of a communicator: agreed upon, planned, run; and pieces as arrays, with what carries them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from bilinear.distributed.connection import Connection, Told
from bilinear.distributed.distributions import Distribution, Pieces, Slab, Spread
from bilinear.distributed.rank import Multiply, steps_of
from bilinear.distributed.rank_plan import Extents, RankPlan, decompose, rank_workspace
from bilinear.errors import BilinearError, fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Dtype
from bilinear.ir.scheme import Scheme
from bilinear.lowering.prepare import ready
from bilinear.planner.problem import require_accuracy, require_reproducible
from bilinear.planner.streamed import BALANCES
from bilinear.runtime.arrays import Kind, adopt, cupy_module, is_on_gpu, kind_of
from bilinear.runtime.matmul import matmul as multiply_here
from bilinear.runtime.options import ProductOptions, algorithm_as_it_is, runs_in_place
from bilinear.runtime.same_bits import require_same_bits
from bilinear.version import __version__

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = TypeVar("P")
CLASSICAL = "2d"
KINDS = "iufc"  # NumPy's letters of the element types that are multiplied.
TIMEOUT = 20.0  # Seconds.
BITS = 3  # Leading bits of the workspace of `auto`: what is free changes between calls, plans shall not.


@dataclass(frozen=True)
class Request:
    """What a call asks for beside its pieces."""

    shape: Extents
    distributions: tuple[Distribution, Distribution, Distribution]
    decomposition: str | Loaded = CLASSICAL
    levels: int | Literal["auto"] = "auto"
    memory: int | None = None
    algorithm: str = "auto"
    local_levels: int | Literal["auto"] = "auto"
    accuracy: float | Literal["classical", "twice"] | None = None
    reproducible: Literal["bitwise"] | None = None
    balance: Literal["static", "queue"] | None = None

    def require_bits(self, dtype: Dtype, on_gpu: bool) -> None:
        """Refuse (E821) pieces whose product has not the bits that are asked for."""
        if self.reproducible is not None:
            require_same_bits(np.dtype(dtype), on_gpu)


def run(connection: Connection, a: Array, b: Array, asked: Request, timeout: float) -> Array:
    """This rank's piece of the product, on a connection."""

    rank = connection.comm.rank

    def planned() -> tuple[tuple[RankPlan, Kind, list[Array]], str]:
        plan, digest = plan_for(asked, str(a.dtype), connection.comm.size)
        check_pieces({"A": a, "B": b}, plan.given, rank)
        kind, pieces = adopted(a, b)
        require_carrier(kind.on_gpu, connection.comm.size)
        with current(pieces[0], kind.on_gpu):
            asked.require_bits(a.dtype, kind.on_gpu)
        return (plan, kind, pieces), digest

    plan, kind, (left, right) = agreed(connection, said(a, asked, carrier(is_on_gpu(a))), planned, timeout)
    with current(left, kind.on_gpu):
        multiply = local_multiply(asked, plan, rank, kind.on_gpu, left.dtype.itemsize)
        return kind.give_back(connection.run(steps_of(plan, rank, left, right, multiply), kind.on_gpu))


def local_multiply(asked: Request, plan: RankPlan | None, rank: int, on_gpu: bool, itemsize: int) -> Multiply:
    """The multiply of what one rank holds: `auto` works in the memory that the plan over the ranks leaves."""
    named: ProductOptions = {"algorithm": asked.algorithm, "levels": asked.local_levels}
    named["inputs"] = "consume" if plan is not None and plan.consumes else "preserve"
    multiply = partial(multiply_here, **named, accuracy=asked.accuracy, reproducible=asked.reproducible)
    needed = 0 if plan is None else rank_workspace(plan, rank) * itemsize
    left = [] if asked.memory is None else [asked.memory - needed]
    if on_gpu:
        left.append(free_memory() - needed - (0 if plan is None else plan.given[2][rank].size * itemsize))
    if left and asked.algorithm == "auto":
        return partial(multiply, workspace=rounded_down(min(left)))
    return multiply


def rounded_down(count: int) -> int:
    """The bytes with all but the leading bits 0; 0 for fewer than none."""
    low = max(0, count.bit_length() - BITS)
    return max(0, count) >> low << low


def agreed(connection: Connection, facts: dict[str, str], planned: Callable[[], tuple[P, str]], timeout: float) -> P:
    """The plan, once all ranks agree on facts and digest. All raise the same: E763, E765, E767, or why none can take part."""
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


def said(a: Array, asked: DataclassInstance, carrier: str, but: Collection[str] = ()) -> dict[str, str]:
    """What must be the same on all ranks, as text: the version, the element type, what carries the pieces, and what the call asks for."""
    values = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name not in but}
    if isinstance(values["decomposition"], Loaded):
        values["decomposition"] = values["decomposition"].scheme.name
    own = {
        "the version of bilinear": __version__,
        "the element type": getattr(a, "dtype", type(a).__name__),
        "what carries the pieces": carrier,
    }
    return {name: str(value) for name, value in (own | values).items()}


def scheme_named(decomposition: str | Loaded) -> Scheme | None:
    """The scheme of a decomposition, None for the classical one. Raises what `load` raises."""
    if decomposition == CLASSICAL:
        return None
    return algorithm_as_it_is(decomposition).scheme


def plan_for(asked: Request, dtype: str, ranks: int) -> tuple[RankPlan, str]:
    """The plan of a call on so many ranks, and a digest of it. Raises `BilinearError`."""
    if len(asked.distributions) != 3:
        raise fail("E761", f"{len(asked.distributions)} distributions", "give those of A, B and C, or one for all")
    scheme = scheme_named(asked.decomposition)
    check_options(asked)
    levels = None if asked.levels == "auto" else asked.levels
    whole = asked.accuracy is not None or asked.reproducible is not None
    consumes = runs_in_place(asked.algorithm, asked.local_levels, dtype)
    return _planned(
        tuple(asked.shape), ranks, tuple(asked.distributions), scheme, levels, asked.memory, dtype, whole, consumes, asked.balance
    )


def check_options(asked: Request) -> None:
    """Refuse levels, a balance (E760), bytes (E762), an accuracy (E543) and bits (E820) that are none, or do not go together (E760)."""
    levels, memory = asked.levels, asked.memory
    if levels != "auto" and (not isinstance(levels, int) or isinstance(levels, bool) or levels < 1):
        raise fail("E760", f"levels={levels!r} is not a positive integer", "give the levels of the scheme, or 'auto'")
    if memory is not None and (not isinstance(memory, int) or memory < 0):
        raise fail("E762", f"memory={memory!r} is not a number of bytes", "give an integer of at least 0, or None")
    if asked.balance not in (None, *BALANCES):
        raise fail("E760", f"balance={asked.balance!r} is no way to share blocks", f"choose one of {', '.join(BALANCES)}, or None")
    if asked.balance is not None and (asked.decomposition != CLASSICAL or memory is not None):
        raise fail("E760", "balance= shares blocks of 2d, with memory as it comes", "leave out decomposition= and memory=")
    require_accuracy(asked.accuracy)
    require_reproducible(asked.reproducible)
    require_whole("accuracy", asked.accuracy, asked.decomposition, asked.algorithm)
    require_whole("reproducible", asked.reproducible, asked.decomposition, asked.algorithm, asked.local_levels)


def require_whole(name: str, value: object, decomposition: str | Loaded, algorithm: str, local_levels: int | str = "auto") -> None:
    """Refuse (E760) an option that promises something of whole products beside others that choose how to multiply."""
    if value is not None and (decomposition != CLASSICAL or (algorithm, local_levels) != ("auto", "auto")):
        what = f"{name}= is promised for products that one rank computes, by an algorithm of its choice"
        raise fail("E760", what, f"leave out decomposition=, algorithm= and local_levels=, or {name}=")


@lru_cache(maxsize=16)
def _planned(
    shape: Extents,
    ranks: int,
    distributions: tuple[Distribution, Distribution, Distribution],
    scheme: Scheme | None,
    levels: int | None,
    memory: int | None,
    dtype: str,
    whole: bool,
    consumes: bool,
    balance: str | None,
) -> tuple[RankPlan, str]:
    if scheme is not None:
        scheme = ready(scheme, np.dtype(dtype))
    plan = decompose(shape, ranks, distributions, scheme, levels, memory, np.dtype(dtype).itemsize, whole, consumes, balance)
    tables = [level.tables for level in plan.levels]
    return plan, sha256(repr((tables, plan.home, plan.form, plan.tasks, consumes, plan.by_queue)).encode()).hexdigest()[:16]


def home(
    shape: Extents, ranks: int, decomposition: str | Loaded, *, levels: int | Literal["auto"] = "auto", dtype: str = "float64"
) -> tuple[Pieces, Pieces, Pieces]:
    """The distributions of A, B and C from which only factors and products travel: a scheme's sums are computed where the matrices lie.

    Each rank holds some rows of each block of the scheme.

    Parameters
    ----------
    shape : (int, int, int)
        m, k, n of the product, m x k by k x n.
    ranks : int
        The number of ranks.
    decomposition : str or Algorithm
        As in `matmul`.
    levels : int or "auto"
        As in `matmul`.
    dtype : str
        The type of the matrices.

    Returns
    -------
    (Pieces, Pieces, Pieces)
        Of A, of B and of C, for `distributions=` of `matmul`.

    Raises
    ------
    BilinearError
        As `matmul` does for these arguments.

    Examples
    --------
    >>> from bilinear.distributed import home, shape
    >>> a, b, c = home((64, 32, 48), 7, "winograd")
    >>> shape(a, 0, (64, 32), 7)
    (10, 32)
    """
    plan, _ = plan_for(Request(shape, (Slab.X, Slab.X, Slab.X), decomposition, levels), dtype, ranks)
    return Pieces(plan.home[0]), Pieces(plan.home[1]), Pieces(plan.home[2])


def check_pieces(pieces: Mapping[str, Array], given: Sequence[Spread], rank: int) -> None:
    """Refuse (E767) pieces, by the names of their matrices, that are not what the distributions say, or of several types."""
    first, one = next(iter(pieces.items()))
    for (name, piece), spread in zip(pieces.items(), given, strict=False):
        if piece.dtype != one.dtype:
            raise fail("E767", f"a piece of {name} of {piece.dtype}, and one of {first} of {one.dtype}", "the matrices are of one type")
        if np.dtype(piece.dtype).kind not in KINDS:
            raise fail("E767", f"a piece of {name} of {piece.dtype}", "give integers or floating-point numbers")
        if tuple(piece.shape) != spread[rank].shape:
            expected = " x ".join(map(str, spread[rank].shape))
            raise fail("E767", f"its piece of {name} has the shape {tuple(piece.shape)}, by the distribution it is {expected}")


MARGIN = 0.05  # The part of a GPU's memory left alone: kernels and libraries need some, pools fragment.


def adopted(*pieces: Array) -> tuple[Kind, list[Array]]:
    """A rank's pieces as arrays of NumPy or, on one GPU, of CuPy. Raises `BilinearError` (E511, E767)."""
    kind = kind_of(*pieces)
    found = [adopt(piece, kind) for piece in pieces]
    gpus = {int(x.device.id) for x in found} if kind.on_gpu else set()
    if len(gpus) > 1:
        raise fail("E767", f"its pieces lie on the GPUs {', '.join(map(str, sorted(gpus)))}", "a rank's pieces lie on one GPU")
    return kind, found


def current(piece: Array, on_gpu: bool) -> AbstractContextManager[object]:
    """Make the GPU of a piece the current one."""
    return piece.device if on_gpu else nullcontext()


def carrier(on_gpu: bool) -> str:
    """What carries arrays of GPUs, or of the host, with its version: it must be the same on all ranks."""
    try:
        return "MPI" if not on_gpu else f"NCCL {_nccl()}"
    except BilinearError:
        return "no NCCL"


def require_carrier(on_gpu: bool, ranks: int) -> None:
    """Refuse (E768) pieces on GPUs that nothing can carry to other ranks."""
    if on_gpu and ranks > 1:
        _nccl()


def _nccl() -> str:
    from bilinear.backends.nccl_rounds import version

    return version()


def free_memory() -> int:
    """Bytes of the current GPU that can be allocated: those that are free, and those that CuPy's pool keeps unused."""
    cupy = cupy_module()
    free, whole = cupy.cuda.runtime.memGetInfo()
    return int(free + cupy.get_default_memory_pool().free_bytes() - MARGIN * whole)
