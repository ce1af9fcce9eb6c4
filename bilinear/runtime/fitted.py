"""Fitted: the plan of a proved algorithm for arrays of some shape, made once and found again in microseconds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from bilinear.frontend import Loaded
from bilinear.ir.plan import Plan
from bilinear.planner.plan import choose_levels, make_plan
from bilinear.planner.prepare import prepare
from bilinear.planner.rings import coefficients_of, require_elements


class _Same:
    """An algorithm as a key: equal to itself alone, because to hash its schedule at every call would cost more than the launches."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def __hash__(self) -> int:
        return id(self.loaded)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.loaded is other.loaded


def fitted_plan(
    loaded: Loaded, levels: int | str, inputs: str, extents: tuple[int, int, int], dtype: Any, by_column: frozenset[str] = frozenset()
) -> Plan:
    """The plan of an algorithm at so many levels for an m x k by k x n multiply of a NumPy dtype, proved and fit for the dtype's numbers.

    Raises `BilinearError` where a proof fails or the dtype cannot hold a coefficient.
    """
    return _fitted(_Same(loaded), levels, inputs, extents, dtype, by_column)


@lru_cache(maxsize=256)
def _fitted(same: _Same, levels: int | str, inputs: str, extents: tuple[int, int, int], dtype: Any, by_column: frozenset[str]) -> Plan:
    scheme = same.loaded.scheme
    depth = max(1, choose_levels(scheme, *extents)) if levels == "auto" else int(levels)
    schedule = prepare(scheme, same.loaded.schedule, depth, inputs).schedule
    require_elements(scheme.name, coefficients_of(schedule), str(dtype), dtype.kind)
    return make_plan(schedule, *extents, dtype.itemsize, by_column)
