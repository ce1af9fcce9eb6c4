"""What a check of a product found, as a frozen record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import isfinite

from bilinear.errors import fail


@dataclass(frozen=True)
class Checked:
    """How far C is from alpha*A*B + beta*C0: norms of the difference D, in the Frobenius norm over all matrices of a batch.

    With a probability of at least `confidence` over the random vectors, |D| <= `bound` and no element of D is larger than `largest`.
    `at_least` <= |D| is certain. `estimate` is unbiased in its square. `relative` is `bound` in units of `scale`, which is
    |alpha| |A| |B| + |beta| |C0|. `rounding` is the part of `bound` that covers the roundings of the check itself. `row` is the index of
    the row of C with the largest projection, behind the indices of a batch. Arrays with a NaN or an Inf, or so large that squares
    overflow, have the bounds inf.

    For integers, which are checked modulo 2^w, `bound` is 0 if C passed and inf if it is certainly wrong.
    """

    shape: tuple[int, ...]
    dtype: str
    confidence: float
    vectors: int
    seed: int
    tolerance: float | None
    bound: float
    scale: float
    largest: float
    estimate: float
    at_least: float
    rounding: float
    row: tuple[int, ...]
    exact: bool = field(default=False)

    @property
    def relative(self) -> float:
        """`bound` in units of `scale`."""
        return 0.0 if self.bound == 0 else self.bound / self.scale if self.scale > 0 else float("inf")

    @property
    def passed(self) -> bool | None:
        """Whether `relative` is within the tolerance. None without a tolerance, except for integers, which are right or wrong."""
        if self.exact:
            return self.bound == 0
        return None if self.tolerance is None else self.relative <= self.tolerance

    def require(self) -> Checked:
        """The record itself, if it passed. Raises `BilinearError` (E704) otherwise, and E703 without a tolerance."""
        if self.passed is None:
            raise fail("E703", "a check without a tolerance has no verdict", "give check(..., tolerance=...), relative to |A| |B|")
        if not self.passed:
            raise fail(
                "E704", self._verdict(), "look at its row first; docs/checking.md says what the numbers mean", notes=tuple(self._facts())
            )
        return self

    def to_json(self) -> dict[str, object]:
        """The fields, `relative` and `passed`; a bound of inf is null."""
        facts = {**asdict(self), "relative": self.relative, "passed": self.passed}
        return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in facts.items()}

    def __repr__(self) -> str:
        return f"<Checked C of {self._size()}: {self._verdict()}>"

    def __str__(self) -> str:
        return "\n".join((f"C of {self._size()}, {self.dtype}: {self._verdict()}", *(f"  {fact}" for fact in self._facts())))

    def _size(self) -> str:
        return " x ".join(map(str, self.shape)) or "one element"

    def _verdict(self) -> str:
        if self.exact:
            return "the product, exactly" if self.bound == 0 else "certainly not the product"
        found = f"|C - AB| <= {self.relative:.3g} |A| |B|"
        if self.passed is None:
            return found
        return f"{found}, {'within' if self.passed else 'above'} the tolerance {self.tolerance:g}"

    def _facts(self) -> Iterator[str]:
        if not self.exact or self.bound == 0:
            yield f"with a probability of at least {self.confidence:.12g}, by {self.vectors} random vectors from seed {self.seed}"
        if self.exact:
            if self.bound > 0:
                yield f"row {self._row()} differs"
            return
        if self.bound == float("inf"):
            yield "there is a NaN, an Inf, or a sum that overflows"
            return
        yield f"|C - AB| is about {self.estimate:.3g}, at most {self.bound:.3g}, certainly at least {self.at_least:.3g} (Frobenius norm)"
        yield f"no element is off by more than {self.largest:.3g}; the most is in row {self._row()}"
        yield f"{self.rounding:.3g} of the bound covers roundings of the check itself"

    def _row(self) -> str:
        return ",".join(map(str, self.row))
