"""How large a scheme may be, whoever makes it."""

from __future__ import annotations

from bilinear.errors import fail

MOST_BLOCKS = 4096
"""Blocks of one matrix."""
MOST_PRODUCTS = 20_000
MOST_TERMS = 200_000
"""Terms of all sums of a scheme that is made of others."""


def within_bounds(m: int, k: int, n: int, rank: int) -> bool:
    """Whether a scheme of this format may be."""
    return max(m * k, k * n, m * n) <= MOST_BLOCKS and rank <= MOST_PRODUCTS


def limits() -> str:
    """The bounds of a format, in words."""
    return f"a matrix has at most {MOST_BLOCKS} blocks, a scheme at most {MOST_PRODUCTS} products"


def require_size(m: int, k: int, n: int, rank: int, terms: int) -> None:
    """Refuse what is too large to be made (E641), before anything is made."""
    if not within_bounds(m, k, n, rank):
        raise fail("E641", f"<{m},{k},{n};{rank}> is too large", "compose fewer parts", notes=(limits(),))
    if terms > MOST_TERMS:
        raise fail("E641", f"sums of {terms} terms are too many", "compose fewer parts", notes=(f"at most {MOST_TERMS} are composed",))
