"""Many cheap cases in one test: as a test of its own each would cost pytest more than what it tries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import product
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but one test tries all the cases and tells every one that fails. Several multiply.

    The cases share the test's fixtures. None may be skipped: nobody would see it.
    """
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table: list[dict[str, Any]] = [dict(zip(split, value if len(split) > 1 else [value], strict=True)) for value in values]
    assert table, "a test without a case tries nothing"

    def decorate(test: Test) -> Test:
        tried, cases = getattr(test, "_each_case", (test, [{}]))
        cases = [{**inner, **outer} for inner, outer in product(cases, table)]

        @wraps(test)
        def try_all(**fixtures: Any) -> None:
            failed = [error for case in cases if (error := _error_of(tried, case, fixtures))]
            if len(failed) == 1:
                raise failed[0]
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(cases)} cases fail", failed)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in split]
        assert len(others) + len(split) == len(signature.parameters), f"{test.__name__} does not take all of {split}"
        vars(try_all).update(__signature__=signature.replace(parameters=others), _each_case=(tried, cases))
        return try_all

    return decorate


def _error_of(test: Test, case: dict[str, Any], fixtures: dict[str, Any]) -> BaseException | None:
    """What a case raises, with a note that says which it is."""
    try:
        try:
            test(**case, **fixtures)
        except pytest.skip.Exception as skipped:
            raise AssertionError("a case of a table was skipped") from skipped
    except (Exception, pytest.fail.Exception) as error:
        error.add_note("in the case " + ", ".join(f"{name}={value!r:.200}" for name, value in case.items()))
        return error
    return None
