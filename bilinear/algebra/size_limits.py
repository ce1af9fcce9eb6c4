"""Size limits of all schemes."""

from __future__ import annotations

from bilinear.errors import fail

MOST_BLOCKS = 4096
"""The most blocks of one matrix."""
MOST_PRODUCTS = 20_000
MOST_TERMS = 200_000
"""The most terms in all sums of a scheme made from others."""


def within_bounds(m: int, k: int, n: int, rank: int) -> bool:
    """True if a scheme may have this format."""
    return max(m * k, k * n, m * n) <= MOST_BLOCKS and rank <= MOST_PRODUCTS


def limits() -> str:
    """The limits of a format, in words."""
    return f"a matrix has at most {MOST_BLOCKS} blocks, a scheme at most {MOST_PRODUCTS} products"


def require_size(m: int, k: int, n: int, rank: int, terms: int) -> None:
    """Refuse a scheme that would be too large (E641) before building anything."""
    if not within_bounds(m, k, n, rank):
        raise fail("E641", f"<{m},{k},{n};{rank}> is too large", "compose fewer parts", notes=(limits(),))
    if terms > MOST_TERMS:
        raise fail("E641", f"sums of {terms} terms are too many", "compose fewer parts", notes=(f"at most {MOST_TERMS} are composed",))
