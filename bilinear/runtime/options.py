"""The options of a call: how much workspace it may use, the algorithm it names, and the warning that this does not run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, overload

import numpy as np

from bilinear.backends.caches import Same, keep
from bilinear.errors import fail
from bilinear.frontend import Loaded, load, load_for_arrays, names_of_levels
from bilinear.frontend.files import Looks
from bilinear.ir.matrix import Array, Dtype, Factor
from bilinear.ir.placement import COLOURS, LEVELS_ALLOWED, MOST_LEVELS
from bilinear.lowering.prepare import natural_inputs
from bilinear.planner.cpu import Cpu
from bilinear.planner.device import Device
from bilinear.planner.plan import Plan
from bilinear.planner.problem import BITWISE, require_accuracy, require_contention, require_inputs, require_reproducible
from bilinear.runtime import devices_here
from bilinear.runtime.accept import Casting
from bilinear.runtime.arrays import Kind
from bilinear.runtime.budgets import Workspace, budget_and_buffer
from bilinear.runtime.devices_here import USE_LIBRARY, uses_library, value_of

MOST_NAMED = 64  # The most algorithms that are kept; the oldest is dropped.
Found = TypeVar("Found")

_named: dict[tuple[str, Callable[[str, Looks], object]], tuple[Looks, object]] = {}


@overload
def algorithm_as_it_is(asked: str | Loaded) -> Loaded: ...
@overload
def algorithm_as_it_is(asked: str, read: Callable[[str, Looks], Found]) -> Found: ...
def algorithm_as_it_is(asked: str | Loaded, read: Callable[[str, Looks], object] = load) -> object:
    """The algorithm that `load`, or another function of the frontend, returns; one that is loaded is itself.

    It is the same object until one of its files changes, or a name leads to another file. Every call reads the users' files and compares
    them byte by byte. Shipped files are read once. Raises `BilinearError`.
    """
    if isinstance(asked, Loaded):
        return asked
    asked = str(asked)
    known = _named.get((asked, read))
    if known is not None and known[0].still_hold():
        return known[1]
    looks = Looks()
    loaded = read(asked, looks)
    if looks.can_be_kept:
        keep(_named, (asked, read), (looks, loaded), MOST_NAMED)
    return loaded


Named: TypeAlias = str | Loaded | Sequence[str | Loaded]
"""What `algorithm=` takes: a name, a path or an algorithm; `strassen:2` and `winograd+strassen` name levels, and so does a sequence."""


Accuracy: TypeAlias = float | Literal["classical", "twice"] | None
"""What `accuracy=` takes: a bound of the error, or how it compares with the classical multiply."""


def spelled(algorithm: Named) -> Named:
    """A sequence of names as the text that names these levels; anything else as it is."""
    is_names = not isinstance(algorithm, str | Loaded) and isinstance(algorithm, Sequence) and all(isinstance(x, str) for x in algorithm)
    return "+".join(algorithm) if is_names else algorithm  # type: ignore[arg-type]


def named_levels(algorithm: Named, levels: int | Literal["auto"]) -> tuple[Loaded, int | Literal["auto"]]:
    """The algorithm that is named, with those of the levels below it, and how many levels. Refuses (E514) `levels` beside named ones."""
    if isinstance(algorithm, Loaded):
        return algorithm, levels
    names: Sequence[str | Loaded]
    if isinstance(algorithm, Sequence) and not isinstance(algorithm, str | bytes):
        names = [name for one in algorithm for name in ((isinstance(one, str) and names_of_levels(one)) or (one,))]
    else:
        names = names_of_levels(str(algorithm))
        if not names:
            return algorithm_as_it_is(str(algorithm), load_for_arrays), levels
    if levels != "auto" or not 0 < len(names) <= MOST_LEVELS:
        what = f"levels={levels!r} is given with an algorithm" if levels != "auto" else f"algorithm={algorithm!r:.60} is one"
        raise fail("E514", f"{what} whose levels are named one by one", f"leave levels= out: {LEVELS_ALLOWED}")
    each = [x if isinstance(x, Loaded) else algorithm_as_it_is(str(x), load_for_arrays) for x in names]
    return _together(tuple(map(Same, each))), len(each)


def runs_in_place(algorithm: Named, levels: int | Literal["auto"], dtype: str) -> bool:
    """Whether a schedule is named that writes its operands, and can write those of this type. Raises what `load` raises."""
    if algorithm == "auto" or levels == 0 or np.dtype(dtype).kind == "c":
        return False
    return natural_inputs(named_levels(algorithm, levels)[0].schedule) != "preserve"


@lru_cache(maxsize=MOST_NAMED)
def _together(each: tuple[Same[Loaded], ...]) -> Loaded:
    """Algorithms of several levels as one object, which is always the same for the same ones; a single one runs all levels."""
    first, *below = (x.what for x in each)
    inside = next((x for x in below if x.complex_core is not None), None)
    if inside is not None:
        raise fail("E236", f"{inside.name} multiplies complex numbers, and the products of a level are of real ones", "name it first")
    return first if all(x is first for x in below) else replace(first, below=tuple(below))


_INSIDE = "bilinear", "torch"  # Whose frames are skipped: PyTorch calls its operators.


RUN_ON = "dense arrays of integers, float32, float64, complex64 and complex128, and on a GPU of float16 and bfloat16"
"""What schedules run on."""


def warn_unused(name: str, reason: str) -> None:
    """Warn that the named algorithm does not run, at the first caller outside of this package and of PyTorch."""
    frame, levels = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "torch").partition(".")[0] in _INSIDE:
        frame, levels = frame.f_back, levels + 1
    warnings.warn(f"{name} is not used: {reason}; the library multiplies (schedules run on {RUN_ON})", stacklevel=levels)


LEAST_EXTENT = 256  # On processors `auto` weighs nothing below: a product is faster than a choice.


class MatmulOptions(TypedDict, total=False):
    """The options of `matmul` with a given algorithm, in the type of the operands."""

    alpha: Factor
    beta: Factor
    casting: Casting
    levels: int | Literal["auto"]
    inputs: Literal["preserve", "restore", "consume"]
    workspace: Workspace
    tolerance: float | None
    modulus: int | None
    stream: AbstractContextManager[object] | None
    contention: Literal["colours", "atomics"]


class CallOptions(MatmulOptions, total=False):
    """All options of `matmul`, in the type of the operands."""

    algorithm: Named
    plan: Plan | None
    accuracy: Accuracy
    gpus: int | Sequence[int] | Literal["all"] | None
    memory: int | str | None
    balance: Literal["static", "queue"]
    reproducible: Literal["bitwise"] | None


class ProductOptions(TypedDict, total=False):
    """The options of `matmul` for each of several products."""

    algorithm: Named
    levels: int | Literal["auto"]
    inputs: Literal["preserve", "restore", "consume"]
    workspace: Workspace
    tolerance: float | None
    accuracy: Accuracy
    reproducible: Literal["bitwise"] | None


class Options(NamedTuple):
    """The options of a call, and the `kind` of its operands.

    After `settled`, `algorithm` is None for `auto` and for the library's multiply. `device` describes the GPU if the decision needs it:
    for `auto` to choose a plan, for a named algorithm to choose its tile. `cpu` describes the processors if `auto` chooses a plan for them.
    `conjugated` names the operands whose conjugates are multiplied: "", "A", "B" or "AB".
    """

    alpha: Factor = 1
    beta: Factor = 0
    algorithm: Named | None = "auto"
    levels: int | Literal["auto"] = "auto"
    inputs: str = "preserve"
    workspace: Workspace = None
    tolerance: float | None = None
    plan: Plan | None = None
    accuracy: Accuracy = None
    device: Device | None = None
    kind: Kind = None  # type: ignore[assignment]  # before `settled`: PyTorch's older compilers make no default of a class
    cpu: Cpu | None = None
    conjugated: str = ""
    reproducible: str | None = None
    contention: str = COLOURS

    def as_named(self) -> Options:
        """These options with the algorithm that its name means now, unless the library multiplies, and the accuracy as Python's number."""
        algorithm, levels, accuracy = self.algorithm, self.levels, self.accuracy
        if algorithm != "auto" and value_of(USE_LIBRARY) is not None and uses_library():
            algorithm = algorithm if isinstance(algorithm, Loaded) else str(algorithm)
        elif type(algorithm) is str and algorithm != "auto" and ":" not in algorithm and "+" not in algorithm:
            algorithm = algorithm_as_it_is(algorithm, load_for_arrays)  # what most calls name, in few functions
        elif algorithm is not None and algorithm != "auto":
            algorithm, levels = named_levels(algorithm, levels)
        accuracy = accuracy.item() if isinstance(accuracy, np.generic) else accuracy
        return self._replace(algorithm=algorithm, levels=levels, accuracy=accuracy)

    def settled(self, kind: Kind, cpu: Cpu | None = None) -> Options:
        """These options for operands of this kind, after reading the environment and describing the GPU or, by `described_cpu`, the CPU."""
        if uses_library():
            return self._replace(kind=kind, algorithm=None, levels=0, plan=None)
        if self.plan is not None:
            return self._replace(kind=kind, algorithm=None, levels=0)
        is_auto = self.algorithm == "auto"
        asks = kind.on_gpu and (self.levels == "auto" if is_auto else self.levels != 0)
        device = devices_here.current_device() if asks else None
        if is_auto or self.levels == 0:
            return self._replace(kind=kind, algorithm=None, levels=0, device=device, cpu=cpu)
        return self._replace(kind=kind, device=device)

    @property
    def budget(self) -> int | None:
        """The most bytes of workspace; None if there is no limit, or a buffer of the caller's."""
        return budget_and_buffer(self.workspace)[0]

    @property
    def buffer(self) -> Array:
        """The caller's own workspace, or None."""
        return budget_and_buffer(self.workspace)[1]

    @property
    def is_automatic(self) -> bool:
        """Whether timed plans and the model decide what runs."""
        return self.algorithm is None and self.plan is None and (self.device is not None or self.cpu is not None)

    def described_cpu(self, kind: Kind, a: Array, b: Array) -> Cpu | None:
        """The processors' description if `auto` may gain on these operands: two large matrices in the host's memory, C = A * B."""
        if not self.is_plain(kind) or self.algorithm != "auto" or self.levels != "auto" or self.plan is not None or uses_library():
            return None
        is_large = a.ndim == b.ndim == 2 and min(a.shape + b.shape) >= LEAST_EXTENT
        return devices_here.current_cpu() if is_large else None

    def is_plain(self, kind: Kind) -> bool:
        """Whether these options, not yet settled, mean NumPy's own multiply in the host's memory; the accuracy is ignored."""
        if kind.on_gpu or self.reproducible is not None or self.alpha != 1 or self.beta != 0:
            return False
        return (self.plan is None and (self.algorithm == "auto" or self.levels == 0)) or uses_library()

    @property
    def is_unsaid(self) -> bool:
        """Whether `auto` is free to choose, for alpha * A * B that nothing is added to."""
        is_auto = self.algorithm == self.levels == "auto" and self.plan is None and self.inputs == "preserve" and self.tolerance is None
        return bool(is_auto and self.alpha != 0 and self.beta == 0 and self.reproducible is None and not uses_library())

    @property
    def most_bytes(self) -> int | None:
        """The most bytes of workspace that a chosen plan may need; the size of the caller's buffer if there is one."""
        budget, buffer = budget_and_buffer(self.workspace)
        return budget if buffer is None else getattr(buffer, "nbytes", 0)

    @property
    def question(self) -> tuple[object, ...]:
        """Everything in the options that decides what runs. Algorithm, plan and device count by identity: hashing them is slow."""
        named = tuple(None if x is None else Same(x) for x in (self.algorithm, self.plan, self.device))
        return (
            named,
            self.levels,
            self.inputs,
            self.accuracy,
            self.conjugated,
            self.reproducible,
            self.contention,
            self.most_bytes,
            bool(self.alpha != 0),
            bool(self.beta != 0),
        )


def check_levels(levels: object, algorithm: object) -> None:
    """Refuse (E514) what is not a number of levels, and levels of no algorithm; 0 is the library's multiply."""
    if levels != "auto" and (not isinstance(levels, (int, np.integer)) or isinstance(levels, bool) or levels < 0):
        hint = f"give an integer from 0, or 'auto': {LEVELS_ALLOWED}"
        raise fail("E514", f"levels={levels!r} is not a number of levels", hint)
    if isinstance(algorithm, str) and algorithm == "auto" and levels not in ("auto", 0):
        raise fail("E514", f"levels={levels!r} are those of an algorithm, and none is named", "name one, such as algorithm='winograd'")


def check_options(options: Options, out: Array) -> None:
    """Refuse options that have no meaning: E513, E514, E515, E519, E528, E543, E820, and with a plan E544."""
    plan = options.plan
    require_inputs(options.inputs)
    check_levels(options.levels, options.algorithm if plan is None else None)
    check_factors(options, out)
    require_accuracy(options.accuracy)
    if options.accuracy is not None and (plan is not None or options.algorithm != "auto"):
        what = "accuracy= chooses among plans, and the algorithm is named already"
        raise fail("E519", what, "leave it out; bilinear.plan(..., explain=True) shows the error of every plan")
    if options.reproducible is not None:
        require_reproducible(options.reproducible)
        plain = Options(kind=options.kind, reproducible=BITWISE)
        if options._replace(alpha=1, beta=0, workspace=None, accuracy=None, conjugated="") != plain:
            what = "reproducible= chooses what multiplies: no algorithm, levels, plan, tolerance, contention, or promise of the inputs"
            raise fail("E820", what, "leave them out; accuracy= may choose the number of moduli")
    require_contention(options.contention)
    if options.contention != COLOURS and (plan is not None or options.algorithm == "auto" or options.levels == 0):
        what = f"contention={options.contention!r} is a way to run an in-place schedule, and none is named"
        raise fail("E557", what, "name one and its promise, such as algorithm='msmes', inputs='restore'; or leave it out")
    if plan is not None:
        if not isinstance(plan, Plan):
            what = f"plan is of type {type(plan).__name__}, not a plan of bilinear.plan"
            raise fail("E544", what, "make one with bilinear.plan or load_plan")
        if options.algorithm != "auto" or options.levels != "auto" or options.inputs not in ("preserve", plan.chosen.promise):
            raise fail("E544", "a plan has its own algorithm, levels and promise of the inputs", "leave these options out")


def check_factors(options: Options, out: Array) -> None:
    """Refuse factors that are no numbers (E528), and a beta without an `out` (E515)."""
    factors: tuple[tuple[str, Array], ...] = (("alpha", options.alpha), ("beta", options.beta))
    for name, value in factors:
        if type(value) not in (int, float) and np.ndim(value) != 0:
            raise fail("E528", f"{name} is an array of {np.ndim(value)} dimension(s), not a number", "scale the operands by it")
    if out is None and options.beta != 0:
        raise fail("E515", "beta scales out, and there is no out", "give out=, or leave beta at 0")


def check_plan_fits(plan: Plan, extents: tuple[int, int, int], dtype: Dtype) -> None:
    """Refuse (E544) a plan for another problem."""
    p = plan.problem
    if extents != (p.m, p.k, p.n) or str(dtype) != p.dtype:
        shapes = f"{' x '.join(map(str, (p.m, p.k, p.n)))} of {p.dtype}, these arrays are {' x '.join(map(str, extents))} of {dtype}"
        raise fail("E544", f"the plan is for {shapes}", "plan for this problem")
