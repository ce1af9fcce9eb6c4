"""Ways: levels of algorithms by which a problem may run, and the schedules that they lower to."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bilinear.errors import fail
from bilinear.ir.placement import COLOURS
from bilinear.ir.schedule import Schedule
from bilinear.planner.model import Profile, profile_of

if TYPE_CHECKING:  # readers and passes are imported lazily: planning from the table of outlines needs none of them
    from functools import _lru_cache_wrapper

    from bilinear.frontend import Loaded
    from bilinear.frontend.files import Looks

T = TypeVar("T")
OF_PARTS = "parts"  # In place of the promise, for real products of the parts of complex matrices.


class Way(NamedTuple):
    """The algorithm of each level, the outermost first, the promise of the inputs, or `OF_PARTS`, and one of `CONTENTION`."""

    levels: tuple[str, ...]
    inputs: str = "preserve"
    contention: str = COLOURS


_files: dict[str, tuple[Looks, Loaded]] = {}  # The files that levels name, as they were read.
_caches: list[Callable[[], None]] = []  # They empty the caches of what follows from levels' names.


def kept_by_names(size: int | None) -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """`lru_cache` for what follows from levels' names: when a file that they name has changed, it is emptied."""

    def kept(function: Callable[..., T]) -> _lru_cache_wrapper[T]:
        found = lru_cache(size)(function)
        _caches.append(found.cache_clear)
        return found

    return kept


def algorithm_named(name: str) -> Loaded:
    """The algorithm of a level: shipped, the user's own, or of a file, read once a process. Raises `BilinearError` (E121)."""
    return _files[name][1] if name in _files else _named(name)


@kept_by_names(64)
def _named(name: str) -> Loaded:
    from bilinear.frontend.algorithms import is_file_name, load_named
    from bilinear.frontend.files import Looks

    looks = Looks()
    loaded = load_named(name, looks)
    if is_file_name(name):
        _files[name] = (looks, loaded)
    return loaded


def forget_changed_files() -> None:
    """Forget the files that levels name, and what follows from them, if one of them has changed."""
    if not all(looks.still_hold() for looks, _ in _files.values()):
        forget_names()


def forget_names() -> None:
    """Forget what levels' names mean, and what follows from them."""
    _files.clear()
    for empty in _caches:
        empty()


def full_names(levels: tuple[str, ...]) -> tuple[str, ...]:
    """Levels with the names of files made absolute, so that they mean the same in every folder."""
    from bilinear.frontend.algorithms import is_file_name

    return tuple(str(Path(name).absolute()) if is_file_name(name) else name for name in levels)


def require_sound(levels: tuple[str, ...], dtype: str) -> None:
    """Refuse levels with a scheme that is wrong (E301), or with coefficients that a type, or that of its parts, cannot hold (E528)."""
    from bilinear.ir.element import COMPLEX
    from bilinear.lowering.prepare import proved, require_elements

    part = COMPLEX[dtype].name if dtype in COMPLEX else dtype
    for name in levels:
        scheme = algorithm_named(name).scheme
        proved(scheme)
        if scheme.ring.is_complex and dtype in COMPLEX:
            message = f"{scheme.name} has complex coefficients, and plans weigh products of real matrices"
            raise fail("E528", message, "matmul and compile run it; choose levels with real coefficients for a plan")
        if not scheme.ring.modulus and not scheme.ring.is_approximate:  # those are refused where they are lowered
            require_elements(scheme, (c for table in scheme.tables for form in table for _, c in form), part, "f")


@kept_by_names(64)
def hashes(levels: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """For each level the hashes of its scheme and of its schedule; the latter is empty if there is none."""
    from bilinear.analysis.identity import schedule_hash, scheme_hash

    loaded = [algorithm_named(name) for name in levels]
    return tuple((scheme_hash(x.scheme), "" if x.schedule is None else schedule_hash(x.schedule)) for x in loaded)


@kept_by_names(64)
def authored(name: str, inputs: str) -> Schedule:
    """The schedule by which a level runs."""
    from bilinear.lowering.prepare import authored_schedule

    loaded = algorithm_named(name)
    return authored_schedule(loaded.scheme, loaded.schedule, "preserve" if inputs == OF_PARTS else inputs)


@kept_by_names(256)
def strategies(way: Way) -> tuple[str, ...]:
    """How each level runs."""
    schedules = [authored(name, way.inputs) for name in way.levels]
    return tuple("recurse" if s.overwrites else "expand" if s.workspaces else "inplace" for s in schedules)


@kept_by_names(64)
def lowered(way: Way) -> tuple[Schedule, Profile]:
    """The schedule as it would run, and its counts. It is proved only when it runs."""
    from bilinear.lowering.prepare import lower_levels, lowered_complex

    levels = tuple(authored(name, way.inputs) for name in way.levels)
    schedule = lowered_complex(levels) if way.inputs == OF_PARTS else lower_levels(levels, way.inputs, contention=way.contention)
    return schedule, profile_of(schedule)
