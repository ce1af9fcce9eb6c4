"""The best rank that direct sums and tensor products of known schemes reach for a format, and the composition that reaches it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import product

from bilinear.algebra.composition import AXES, TENSOR, Composition, Triple, permutations
from bilinear.algebra.maps import fold_bases
from bilinear.errors import fail
from bilinear.ir.scheme import Scheme

MOST_FORMATS = 32_768
"""The most formats m x k x n up to the requested one."""
MOST_SIZE = 128
"""The most blocks along one side of the requested format."""

Progress = Callable[[int, int], None]
"""The number of formats done, and of all formats."""


def best_compositions(
    shape: Triple, library: Iterable[tuple[str, Scheme]], progress: Progress = lambda done, of: None
) -> dict[Triple, Composition]:
    """The best composition for every format up to <m,k,n>, by dynamic programming.

    A format is made by the classical scheme, by a scheme of the library (each with its expression in the language) in one of its six
    permutations, by two formats that split one dimension, or by two whose tensor product it is. The least rank wins; then the fewest
    additions, which are those of the best compositions of the parts; then the fewest parts; then the earlier one, in the order above and
    in that of the library. Raises `BilinearError` (E648) if there are too many formats.
    """
    volume = math.prod(shape)
    if volume > MOST_FORMATS or max(shape) > MOST_SIZE:
        told = ",".join(map(str, shape))
        note = f"at most {MOST_FORMATS} are searched, of at most {MOST_SIZE} blocks along a side"
        raise fail("E648", f"there are {volume} formats up to <{told}>", "ask for a smaller format", notes=(note,))
    known = _leaves(library, shape)
    best: dict[Triple, Composition] = {}
    for done, (m, k, n) in enumerate(product(*(range(1, size + 1) for size in shape))):
        progress(done, volume)
        found = Composition(m, k, n, m * k * n, (0, 0, m * (k - 1) * n), text=f"<{m},{k},{n}>")
        for leaf in known.get((m, k, n), ()):
            found = min(found, leaf, key=_worth)
        for operator, left, right in _pairs((m, k, n), best):
            rank = left.rank * right.rank if operator == TENSOR else left.rank + right.rank
            if rank <= found.rank:
                found = min(found, joined(operator, left, right), key=_worth)
        best[m, k, n] = found
    return best


def _worth(recipe: Composition) -> Triple:
    return recipe.rank, sum(recipe.additions), recipe.leaves


def _pairs(shape: Triple, best: dict[Triple, Composition]) -> Iterator[tuple[str, Composition, Composition]]:
    """Every split of one dimension and every factorisation, by the best compositions of the parts; the larger part comes first."""
    for axis, size in enumerate(shape):
        for small in range(1, size // 2 + 1):
            yield f"(+{AXES[axis]})", best[_resized(shape, axis, size - small)], best[_resized(shape, axis, small)]
    for m, k, n in product(*map(_divisors, shape)):
        if (m, k, n) not in (shape, (1, 1, 1)):
            yield TENSOR, best[m, k, n], best[shape[0] // m, shape[1] // k, shape[2] // n]


def joined(operator: str, left: Composition, right: Composition) -> Composition:
    """The composition of two parts, with the number of additions of `direct_sum` or `tensor`."""
    leaves = left.leaves + right.leaves
    if operator == TENSOR:
        m, k, n = left.m * right.m, left.k * right.k, left.n * right.n
        return Composition(m, k, n, left.rank * right.rank, _tensor_additions(left, right), operator, (left, right), leaves=leaves)
    m, k, n = (x + y if operator[2] == axis else x for x, y, axis in zip(left.shape, right.shape, AXES, strict=True))
    a, b, c = (x + y for x, y in zip(left.additions, right.additions, strict=True))
    additions = (a, b, c + m * n if operator[2] == "k" else c)
    return Composition(m, k, n, left.rank + right.rank, additions, operator, (left, right), leaves=leaves)


def _tensor_additions(left: Composition, right: Composition) -> Triple:
    """The additions of U, V and W when the factors run one after the other in the better order."""

    def cost(x: int, x_in: int, x_out: int, y: int, y_in: int, y_out: int) -> int:
        return min(x * y_in + x_out * y, y * x_in + y_out * x)

    (a, b, c), (d, e, f) = left.additions, right.additions
    return (
        cost(a, left.m * left.k, left.rank, d, right.m * right.k, right.rank),
        cost(b, left.k * left.n, left.rank, e, right.k * right.n, right.rank),
        cost(c, left.rank, left.m * left.n, f, right.rank, right.m * right.n),
    )


def _leaves(library: Iterable[tuple[str, Scheme]], largest: Triple) -> dict[Triple, list[Composition]]:
    """The permutations of the schemes that fit, by format; only the schemes of least rank for each format."""
    least: dict[Triple, list[tuple[str, Scheme]]] = {}
    for text, scheme in library:
        shape = _sorted(scheme.m, scheme.k, scheme.n)
        rivals = least.get(shape, [])
        if any(x > y for x, y in zip(shape, sorted(largest), strict=True)) or (rivals and rivals[0][1].rank < scheme.rank):
            continue
        least[shape] = [(text, scheme)] if not rivals or scheme.rank < rivals[0][1].rank else [*rivals, (text, scheme)]
    found: dict[Triple, list[Composition]] = {}
    for text, scheme in (entry for entries in least.values() for entry in entries):
        for expression, turned in _turned(text, scheme):
            plain = fold_bases(turned)
            additions = (plain.u.additions, plain.v.additions, plain.w.additions)
            leaf = Composition(turned.m, turned.k, turned.n, turned.rank, additions, text=expression, leaf=turned)
            found.setdefault((turned.m, turned.k, turned.n), []).append(leaf)
    return found


def _turned(text: str, scheme: Scheme) -> Iterator[tuple[str, Scheme]]:
    """The six permutations of a scheme with their expressions, the shortest expressions first."""
    rotations = (text, f"rotate({text})", f"rotate(rotate({text}))")
    expressions = (*rotations, *(f"transpose({rotated})" for rotated in rotations))
    yield from sorted(zip(expressions, permutations(scheme), strict=True), key=lambda pair: pair[0].count("("))


def _resized(shape: Triple, axis: int, size: int) -> Triple:
    x, y, z = (size if i == axis else old for i, old in enumerate(shape))
    return x, y, z


def _sorted(m: int, k: int, n: int) -> Triple:
    x, y, z = sorted((m, k, n))
    return x, y, z


def _divisors(number: int) -> list[int]:
    return [d for d in range(number, 0, -1) if number % d == 0]
