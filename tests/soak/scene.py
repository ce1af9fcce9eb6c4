"""A call of any entry point: drawn arrays and options, an exact oracle, and a refusal that has changed nothing.

Elements are small integers, so that results are exact in every type: `wanted` is of int64, float64 or complex128.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from soak.case import PASSED, REFUSED, Case, Finding
from soak.homes import Held, Numpy, home_of
from soak.layouts import GUARD, Array, Laid, laid_out, placed

from bilinear.errors import BilinearError

SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 27, 31, 32, 33, 48, 64, 65, 100, 128)
ALGORITHMS = (
    "auto",
    "strassen",
    "winograd",
    "winograd_depth_first",
    "msmes",
    "naive2x2",
    "laderman",
    "hopcroft_kerr",
    "classical",
    "split_k",
)
IN_PLACE = ("msmes", "classical", "winograd_in_place", "laderman_in_place", "hopcroft_kerr_in_place")
WRITES = ("E521", "E522", "E523", "E525", "E526", "E527", "E532", "E785")
"""Why a call that would write its operands is refused."""


class Scene:
    """What a case draws, one after another, and the arrays that it has made."""

    def __init__(self, generator: np.random.Generator, home: Numpy) -> None:
        self.draw, self.home, self.held, self.said = generator, home, list[Held](), list[str]()
        self.differs: Callable[[Array, Array], Any] = lambda found, exact: found != exact.astype(found.dtype)
        self.is_back: Callable[[Held, Array], bool] = lambda held, now: np.array_equal(now, held.values)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return bool(self.draw.random() < probability)

    def one_of(self, choices: Sequence[Any]) -> Any:
        """One of some values, as it is."""
        return choices[int(self.draw.integers(len(choices)))]

    def extents(self, count: int, most: int | None = None) -> tuple[int, ...]:
        """Drawn extents, now and then one of 0."""
        most = most or self.home.longest
        sides = [s for s in SIDES if s <= most]
        each = (self.one_of(sides) if self.chance(0.5) else int(self.draw.integers(1, most + 1)) for _ in range(count))
        return tuple(0 if self.chance(0.01) else extent for extent in each)

    def dtype(self, kinds: str = "iufc", halves: bool = False) -> np.dtype[Any]:
        """One of the element types of the home; with `halves` also float16, which holds no product of many matrices."""
        dtypes: list[np.dtype[Any]] = [np.dtype(name) for name in self.home.dtypes]
        fine = [at for at, dtype in enumerate(dtypes) if dtype.kind in kinds and (halves or dtype.char != "e")]
        return dtypes[int(self.draw.choice(fine))]

    def whole(self, shape: Sequence[int], dtype: Any, most: int = 4) -> Array:
        """Small integers, complex ones for complex types."""
        dtype = np.dtype(dtype)
        most = 1 if dtype.char == "e" else most
        least = 0 if dtype.kind == "u" else -most
        values = self.draw.integers(least, most + 1, tuple(shape))
        return np.asarray(values + 1j * self.draw.integers(-most, most + 1, values.shape) if dtype.kind == "c" else values).astype(dtype)

    def put(self, values: Array, *, repeats: bool = False) -> Held:
        """An array of these values in a drawn layout; elements of an axis are one and the same now and then, if it `repeats`."""
        plain = self.chance(0.4)
        where = {"bytewise": self.home.bytewise, "reverses": self.home.reverses}
        held = Held(self.home, laid_out(self.draw, values, plain=plain, repeats=repeats and self.chance(0.1), **where))
        if self.home.name == "numpy" and self.chance(0.03):
            held.array.flags.writeable = False
        self.held.append(held)
        return held

    def integers(self, shape: Sequence[int], dtype: Any, large: bool = False) -> Held:
        """An operand; of all numbers of an integer type if they are `large`."""
        info = np.iinfo(dtype) if large else None
        values = self.whole(shape, dtype) if info is None else self.draw.integers(info.min, info.max, tuple(shape), dtype, endpoint=True)
        return self.put(values, repeats=True)

    def out(self, shape: Sequence[int], dtype: Any, *operands: Held, always: bool = False) -> Held | None:
        """Where a result may go: nowhere, into an array of its own, or over an operand; never into elements that are one and the same."""
        if not always and self.chance(0.3):
            return None
        if operands and self.chance(0.1):
            other = self.one_of(operands)
            shift = int(self.draw.integers(-GUARD, GUARD + 1)) if self.chance(0.5) else 0
            held = self.over(other, shape, dtype, shift)
            if held is not None:
                return held
        return self.put(self.whole(shape, dtype))

    def over(self, other: Held, shape: Sequence[int], dtype: Any, shift: int) -> Held | None:
        """An array over another one, some elements from it, if there can be one."""
        view = other.laid.view
        held = other.over(self.whole(shape, dtype), shift) if view.dtype == dtype and view.flags.writeable else None
        if held is not None:
            for one in self.held:
                if one.buffer is other.buffer:
                    one.laid = Laid.of(one.laid.view, one.laid.base, one.laid.offset)
            self.held.append(held)
        return held

    def factors(self, dtype: Any, out: Held | None) -> dict[str, Any]:
        """alpha, and beta if there is an `out`: mostly whole."""
        some = (1, 1, 2, -1, 3, 0) if np.dtype(dtype).kind != "f" else (1, 1, 2, -1, 3, 0, 0.5)
        drawn = {"alpha": self.one_of(some)} if self.chance(0.4) else {}
        return drawn | ({"beta": self.one_of(some)} if out is not None and self.chance(0.5) else {})

    def options(self, *, writes: bool = True, workspace: bool = True) -> dict[str, Any]:
        """Algorithm, levels, promise and workspace of a product."""
        named: dict[str, Any] = {"algorithm": self.one_of(ALGORITHMS)} if self.chance(0.8) else {}
        if writes and self.chance(0.25):
            named = {"algorithm": self.one_of(IN_PLACE), "inputs": self.one_of(("restore", "consume"))}
        if named.get("algorithm", "auto") != "auto" and self.chance(0.8):
            named["levels"] = int(self.draw.integers(0 if self.chance(0.1) else 1, 3))
        if workspace and self.chance(0.3):
            named["workspace"] = self.one_of(("none", "unlimited", int(self.draw.integers(0, 500_000))))
        return named

    def reasons(self, options: dict[str, Any], dtype: Any, out: Held | None = None, factors: Any = None) -> set[str]:
        """The codes that a call with these options, this type of the product, `out` and factors gives a reason for."""
        found = {"E535"} if options.get("workspace", "unlimited") != "unlimited" else set()
        found |= {"E501"} if options.get("levels") == 2 and self.home.captures else set()  # a kernel reads at most 64 blocks at once
        found |= {"E775", "E777"} if self.home.captures and np.dtype(dtype) == np.float16 else set()  # sums of blocks that would be rounded
        found |= {*WRITES} if options.get("inputs", "preserve") != "preserve" else set()
        values, own = [] if factors is None else list(factors.values()), [np.dtype(dtype)]
        if out is not None:
            own.append(out.values.dtype)
            found |= set() if out.laid.view.flags.writeable else {"E520"}
            found |= set() if np.can_cast(own[0], own[1], "same_kind") else {"E530", "TypeError"}
        if (any(value < 0 for value in values) and "u" in [x.kind for x in own]) or (0.5 in values and {x.kind for x in own} & {*"iu"}):
            found |= {"E528"}
        return found

    def say(self, *words: object) -> None:
        """Remember what a finding must tell."""
        self.said += map(str, words)

    def settle(
        self,
        call: Callable[[], Any],
        wanted: Array | Sequence[Array],
        dtype: Any,
        outs: Sequence[Held | None] = (None,),
        reasons: Iterable[str] = (),
        written: Sequence[Held] = (),
        restored: Sequence[Held] = (),
    ) -> str:
        """Call, compare with what is wanted, and on a GPU once more from a graph. `written` are left undefined.

        New results are of the `dtype`. `reasons` are codes of diagnostics and names of exceptions, or "any".
        """
        wanted = [wanted] if isinstance(wanted, np.ndarray) else list(wanted)
        results = self._tried(call, {*reasons})
        if results is None:
            return REFUSED
        if never := {"E520", "E530"} & {*reasons}:
            raise Finding(f"ran where it must be refused ({', '.join(never)})")
        self._compare(results, wanted, dtype, outs, written, restored)
        if self.home.captures and None not in outs and self.chance(0.5):
            self._settle_captured(call, {*reasons, "E536"}, wanted, dtype, outs, written, restored)
        return PASSED

    def refused(self, call: Callable[[], Any], codes: Iterable[str]) -> str:
        """A call that must be refused for one of these reasons."""
        if self._tried(call, {*codes}) is not None:
            raise Finding(f"ran where it must be refused ({', '.join(codes)})")
        return REFUSED

    def _tried(self, call: Callable[[], Any], reasons: set[str]) -> Any:
        """What a call gives, or None if it is refused."""
        try:
            return call()
        except BilinearError as error:
            self._require_unchanged(error)
            if not reasons & {"any", *(diagnostic.code for diagnostic in error.diagnostics)}:
                raise Finding(f"refused without a reason: {error}") from error
        except (TypeError, ValueError) as error:
            if self.home.lacks(error):
                return None
            self._require_unchanged(error)
            if not reasons & {"any", *(base.__name__ for base in type(error).__mro__)}:
                raise Finding(f"{type(error).__name__}: {error}") from error
        return None

    def _require_unchanged(self, error: Exception) -> None:
        for number, held in enumerate(self.held):
            if not held.now().is_untouched():
                raise Finding(f"a refused call has changed array {number} or what lies beside it: {error}") from error

    def _settle_captured(self, call: Any, reasons: set[str], wanted: Any, dtype: Any, outs: Any, written: Any, restored: Any) -> None:
        for held in self.held:
            held.reset()
        self.said.append("captured in a graph")
        results = self._tried(lambda: self.home.captured(call), reasons)
        if results is not None:
            self._compare(results, wanted, dtype, outs, written, restored)

    def _compare(self, results: Any, wanted: Sequence[Array], dtype: Any, outs: Any, written: Sequence[Held], restored: Any) -> None:
        results = results if isinstance(results, tuple | list) else [results]
        free = [held for held in (*outs, *written, *restored) if held is not None]
        for number, held in enumerate(self.held):
            now = held.now()
            shared = any(out is not None and out.buffer is held.buffer for out in outs)
            if held in restored and not shared and not self.is_back(held, now.view):
                raise Finding(f"array {number} was not restored")
            for other in free:
                if other.buffer is held.buffer:
                    view = other.laid.view
                    placed(now.base, view.dtype, view.shape, other.laid.offset, view.strides)[...] = other.values
            if not now.is_untouched():
                raise Finding(f"array {number}, or what lies beside it, was written")
        for own, exact, held in zip(results, wanted, outs, strict=True):
            found = self.home.host(own) if held is None else held.now().view
            if held is not None and own is not held.array:
                raise Finding("what is returned is not out")
            kind = dtype if held is None else held.values.dtype
            if (found.shape, found.dtype) != (exact.shape, kind):
                raise Finding(f"the result is {found.dtype} {found.shape}, not {kind} {exact.shape}")
            wrong = np.asarray(self.differs(found, exact))
            if wrong.any():
                place = tuple(int(i) for i in np.argwhere(wrong)[0])
                raise Finding(f"{int(wrong.sum())} of {wrong.size} elements are wrong, {place}: {found[place]!r} for {exact[place]!r}")

    def __str__(self) -> str:
        return "\n".join([self.home.name, *(f"array {n}: {held.laid}" for n, held in enumerate(self.held)), *self.said])


def wide(x: Array) -> Array:
    """In a type that holds every product and sum of a case exactly, or that wraps as integers do."""
    return x.astype({"c": "complex128", "f": "float64"}.get(x.dtype.kind, "int64"))


def scaled(product: Array, dtype: Any, factors: dict[str, Any], out: Held | None) -> Array:
    """alpha * product, which wraps in its type, + beta * out."""
    alpha, beta = factors.get("alpha", 1), factors.get("beta", 0)
    exact = wide((alpha * product).astype(dtype))
    return exact + beta * wide(out.values) if out is not None and beta else exact


def play(case: Case, act: Callable[[Scene], str], home: str | None = None) -> str:
    """Run a case whose arrays lie in a home."""
    generator = case.generator()
    with home_of(generator, home) as where, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        scene = Scene(generator, where)
        try:
            return act(scene)
        except Finding as found:
            raise Finding(f"{found}\n{scene}") from found
        except Exception as error:
            if where.lacks(error):
                return REFUSED
            error.add_note(str(scene))
            raise
