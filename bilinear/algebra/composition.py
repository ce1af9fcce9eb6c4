"""Schemes made from others: products, direct sums and permutations, of digits and of complex numbers too; and compositions as trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from bilinear.algebra.complex_products import three_products
from bilinear.algebra.maps import (
    bases_of,
    fold_bases,
    kronecker,
    maps_of,
    number_of_terms,
    on_blocks,
    reading,
    reduced,
    reordered,
    together,
    transposed,
)
from bilinear.errors import fail
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.ring import RATIONALS, Ring
from bilinear.ir.scheme import Bases, Scheme, exponent_of

AnyScheme = Scheme | DigitScheme | ComplexAlgorithm

MOST_LETTERS = 100


def joined_name(first: AnyScheme, word: str, second: AnyScheme) -> str:
    """Both names with a word between them."""
    return shortened(f"{first.name}_{word}_{second.name}")


def shortened(name: str) -> str:
    """A name shortened to a readable length."""
    return name if len(name) <= MOST_LETTERS else "composed"


def joined_citations(first: AnyScheme, second: AnyScheme) -> str:
    """Both citations; one is left out if the other contains it."""
    one, other = first.citation, second.citation
    if other in one or one in other:
        return max(one, other, key=len)
    return f"{one} {other}" if one.endswith(".") else f"{one}; {other}"


def numbered(rank: int) -> tuple[str, ...]:
    """M1, M2, ..."""
    return tuple(f"M{i + 1}" for i in range(rank))


MOST_BLOCKS = 4096  # The most blocks of one matrix.
MOST_PRODUCTS = 20_000
MOST_TERMS = 200_000  # The most terms in all sums of a scheme made from others.


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


INTEGERS = Ring("Z")


def lies_over(scheme: Scheme, ring: Ring) -> bool:
    """True if a scheme that holds over its ring holds over this one too: the same, a larger one, or Z/p if p divides no denominator."""
    if scheme.ring in (ring, INTEGERS):
        return True
    if scheme.ring != RATIONALS or ring == INTEGERS:
        return False
    return not ring.modulus or all(ring.holds(c) for linear in maps_of(scheme) for row in linear.steps + linear.outputs for _, c in row)


def joined_ring(first: Scheme, second: Scheme) -> Ring:
    """The ring of a scheme made from both: the ring of one, over which the other lies as well. Raises `BilinearError` (E640)."""
    for ring in (first.ring, second.ring):
        if lies_over(first, ring) and lies_over(second, ring):
            return ring
    message = f"{first.name} is over {first.ring} and {second.name} over {second.ring}, and neither ring holds both"
    raise fail("E640", message, "compose schemes over one ring; a scheme over Z lies over every ring")


def classical(m: int, k: int, n: int) -> Scheme:
    """The scheme <m,k,n;mkn> of all products A[i,p] * B[p,j], grouped by block of C. Raises `BilinearError` (E641)."""
    require_size(m, k, n, m * k * n, 3 * m * k * n)
    triples = [(i, p, j) for i in range(m) for j in range(n) for p in range(k)]
    u = LinearMap(m * k, tuple(((i * k + p, 1),) for i, p, _ in triples))
    v = LinearMap(k * n, tuple(((p * n + j, 1),) for _, p, j in triples))
    w = LinearMap(m * k * n, tuple(tuple((c * k + p, 1) for p in range(k)) for c in range(m * n)))
    return Scheme(f"classical_{m}_{k}_{n}", m, k, n, u, v, w, numbered(m * k * n), INTEGERS)


def tensor(outer: Scheme, inner: Scheme) -> Scheme:
    """The scheme <m*m', k*k', n*n'; r*r'> in which `inner` computes every product of `outer`.

    Block (i, j) of the outer A holds the inner blocks (i*m' + i', j*k' + j'); product p of the outer scheme and q of the inner one is
    product p*r' + q. U, V and W are Kronecker products (Strassen 1969 for levels of one scheme; Buergisser, Clausen, Shokrollahi, Algebraic
    Complexity Theory, 1997, for tensors), run one factor after the other, so shared sums stay shared. Changes of basis are tensored as
    well. For approximate schemes the error keeps a positive order. Raises `BilinearError`: E640 if no ring holds both, E641 if the scheme
    grows too large.
    """
    outer, inner = on_blocks(outer), on_blocks(inner)
    ring = joined_ring(outer, inner)
    m, k, n = outer.m * inner.m, outer.k * inner.k, outer.n * inner.n
    x, y = bases_of(outer), bases_of(inner)
    pairs = ((outer.u, inner.u), (outer.v, inner.v), (outer.w, inner.w), (x.a, y.a), (x.b, y.b), (x.c, y.c))
    require_size(m, k, n, outer.rank * inner.rank, sum(_terms(*pair) for pair in pairs))
    a = _grid(outer.m, outer.k, inner.m, inner.k)
    b = _grid(outer.k, outer.n, inner.k, inner.n)
    c = _grid(outer.m, outer.n, inner.m, inner.n)
    u, v, w = reading(kronecker(outer.u, inner.u), a), reading(kronecker(outer.v, inner.v), b), kronecker(outer.w, inner.w)
    bases = None
    if outer.bases is not None or inner.bases is not None:
        bases = Bases(_on_grid(x.a, y.a, a), _on_grid(x.b, y.b, b), _on_grid(x.c, y.c, c))
    name, citation = joined_name(outer, "x", inner), joined_citations(outer, inner)
    products = numbered(outer.rank * inner.rank)
    return reduced(Scheme(name, m, k, n, u, v, reordered(w, _inverse(c)), products, ring, citation, bases=bases, factors=(outer, inner)))


def _terms(outer: LinearMap, inner: LinearMap) -> int:
    """An upper bound on the terms of the Kronecker product, in the order that has more."""
    orders = ((outer, inner), (inner, outer))
    return max(number_of_terms(x) * y.inputs + len(x.outputs) * number_of_terms(y) for x, y in orders)


def _grid(rows: int, columns: int, inner_rows: int, inner_columns: int) -> list[int]:
    """For each outer block and each inner one within it, the row-major number of the fine block."""
    return [
        (i * inner_rows + s) * columns * inner_columns + j * inner_columns + t
        for i in range(rows)
        for j in range(columns)
        for s in range(inner_rows)
        for t in range(inner_columns)
    ]


def _on_grid(outer: LinearMap, inner: LinearMap, grid: list[int]) -> LinearMap:
    """The Kronecker product of two changes of basis, with both sides in row-major order."""
    return reordered(reading(kronecker(outer, inner), grid), _inverse(grid))


def _inverse(order: list[int]) -> list[int]:
    there = {new: old for old, new in enumerate(order)}
    return [there[i] for i in range(len(order))]


AXES = ("m", "k", "n")


def direct_sum(first: Scheme, second: Scheme, axis: str) -> Scheme:
    """The scheme that splits one dimension, `m`, `k` or `n`, and runs `first` on one part and `second` on the other; ranks add up.

    Along m: C1 = A1*B above C2 = A2*B. Along n: C1 = A*B1 beside C2 = A*B2. Along k: C = A1*B1 + A2*B2, which costs m*n more additions. The
    products of `first` come first. Named sums are kept, and changes of basis are folded into them. Raises `BilinearError`: E640 if no ring
    holds both, E641 if the scheme grows too large, E642 if the other two dimensions differ.
    """
    one, two = (first.m, first.k, first.n), (second.m, second.k, second.n)
    for letter, x, y in zip(AXES, one, two, strict=True):
        if letter != axis and x != y:
            message = f"{first.format} and {second.format} do not fit together along {axis}: {letter} is {x} and {y}"
            raise fail("E642", message, f"schemes that are added along {axis} agree in the other two dimensions")
    ring = joined_ring(first, second)
    m, k, n = (x + y if letter == axis else x for letter, x, y in zip(AXES, one, two, strict=True))
    rank = first.rank + second.rank
    require_size(m, k, n, rank, sum(number_of_terms(linear) for scheme in (first, second) for linear in maps_of(scheme)))
    first, second = fold_bases(first), fold_bases(second)
    u = together(m * k, [(first.u, _part(m, k, first.m, first.k, 0)), (second.u, _part(m, k, second.m, second.k, -1))])
    v = together(k * n, [(first.v, _part(k, n, first.k, first.n, 0)), (second.v, _part(k, n, second.k, second.n, -1))])
    w = together(rank, [(first.w, range(first.rank)), (second.w, range(first.rank, rank))])
    places = [*_part(m, n, first.m, first.n, 0), *_part(m, n, second.m, second.n, -1)]
    name, citation = joined_name(first, f"plus_{axis}", second), joined_citations(first, second)
    rows: list[Form] = [()] * (m * n)
    for place, output in zip(places, w.outputs, strict=True):
        rows[place] = tuple(sorted(rows[place] + output))
    return reduced(Scheme(name, m, k, n, u, v, LinearMap(w.inputs, tuple(rows), w.steps), numbered(rank), ring, citation))


def _part(rows: int, columns: int, own_rows: int, own_columns: int, corner: int) -> list[int]:
    """The numbers of the blocks in the first (0) or last (-1) corner of a grid."""
    top, left = (rows - own_rows, columns - own_columns) if corner else (0, 0)
    return [(top + i) * columns + left + j for i in range(own_rows) for j in range(own_columns)]


def rotate(scheme: Scheme) -> Scheme:
    """The scheme <k,n,m;r> from trace(A*B*C) = trace(B*C*A); three rotations return the original scheme.

    The new U is V, the new V is the transposed W over transposed blocks, and the new W is the transposed U (Hopcroft, Musinski 1973).
    Programs of U and W are run backwards, so shared sums stay shared.
    """
    scheme = on_blocks(scheme)
    m, k, n, bases = scheme.m, scheme.k, scheme.n, scheme.bases
    v, w = _reads_columns(transposed(scheme.w), m, n), reordered(transposed(scheme.u), _columns(k, m))
    if bases is not None:
        bases = Bases(bases.b, _on_columns(transposed(bases.c), m, n), _on_columns(transposed(bases.a), m, k))
    name = shortened(f"{scheme.name}_rotated")
    return replace(scheme, name=name, m=k, k=n, n=m, u=scheme.v, v=v, w=w, bases=bases, places=None)


def transpose(scheme: Scheme) -> Scheme:
    """The scheme <n,k,m;r> from C^T = B^T * A^T; applying it twice returns the original scheme."""
    scheme = on_blocks(scheme)
    m, k, n, bases = scheme.m, scheme.k, scheme.n, scheme.bases
    u, v, w = _reads_columns(scheme.v, k, n), _reads_columns(scheme.u, m, k), reordered(scheme.w, _columns(n, m))
    if bases is not None:
        bases = Bases(_on_columns(bases.b, k, n), _on_columns(bases.a, m, k), _on_columns(bases.c, m, n))
    name = shortened(f"{scheme.name}_transposed")
    return replace(scheme, name=name, m=n, n=m, u=u, v=v, w=w, bases=bases, places=None)


def permutations(scheme: Scheme) -> tuple[Scheme, ...]:
    """The scheme, its two rotations, and their transposes: <m,k,n>, <k,n,m>, <n,m,k>, <n,k,m>, <m,n,k>, <k,m,n>."""
    rotations = (scheme, rotate(scheme), rotate(rotate(scheme)))
    return (*rotations, *map(transpose, rotations))


def _columns(rows: int, columns: int) -> list[int]:
    return [j * rows + i for i in range(rows) for j in range(columns)]


def _reads_columns(linear: LinearMap, rows: int, columns: int) -> LinearMap:
    return reading(linear, _columns(rows, columns))


def _on_columns(linear: LinearMap, rows: int, columns: int) -> LinearMap:
    return reordered(_reads_columns(linear, rows, columns), _columns(columns, rows))


def tensor_digits(outer: AnyScheme, inner: AnyScheme) -> DigitScheme:
    """The tensor product of a block scheme and a digit scheme: sums of a block scheme on the left are formed before numbers are cut.

    Raises `BilinearError`: E236 if both are digit schemes, if the block scheme is inside of floating-point digits, whose sums would be
    rounded, or if it does not hold for real numbers; E641 if the scheme grows too large.
    """
    if isinstance(outer, DigitScheme) and isinstance(inner, DigitScheme):
        message = f"{outer.name} and {inner.name} both multiply digits"
        raise fail("E236", message, "a number is cut once: compose one of them with block schemes")
    if isinstance(outer, DigitScheme):
        assert isinstance(inner, Scheme)
        representation = outer.representation
        if not representation.is_modular:
            message = f"{inner.name} would add up digits of {representation.name}, and sums of {representation.digit} are rounded"
            raise fail("E236", message, f"write {inner.name} (x) {outer.name}: numbers are then added up before they are cut")
        made = replace(outer, inside=inner if outer.inside is None else tensor(outer.inside, inner))
    else:
        assert isinstance(inner, DigitScheme) and isinstance(outer, Scheme)
        if outer.ring.modulus or outer.ring.is_approximate:
            message = f"{outer.name} is over {outer.ring}, and its sums are formed in {inner.representation.of} before they are cut"
            raise fail("E236", message, "take a block scheme over Z or Q")
        made = replace(inner, above=outer if inner.above is None else tensor(outer, inner.above))
    require_size(*made.sizes, made.rank, 0)
    return replace(made, name=joined_name(outer, "x", inner), citation=joined_citations(outer, inner))


TENSOR = "(x)"
Triple = tuple[int, int, int]


@dataclass(frozen=True)
class SchemeTree:
    """How a scheme is made: from two parts by an `operator` of the language, `(x)`, `(+m)`, `(+k)` or `(+n)`, or taken as it is.

    A leaf has an expression, its `text`, and is the scheme `leaf`, or the classical scheme if that is None. `additions` are those of U, V
    and W as written, changes of basis included.
    """

    m: int
    k: int
    n: int
    rank: int
    additions: Triple
    operator: str = ""
    parts: tuple[SchemeTree, ...] = ()
    text: str = ""
    leaf: Scheme | None = None
    leaves: int = 1

    @property
    def shape(self) -> Triple:
        """m, k and n."""
        return self.m, self.k, self.n

    @property
    def format(self) -> str:
        """The format as written: `<2,2,2;7>`."""
        return f"<{self.m},{self.k},{self.n};{self.rank}>"

    @property
    def exponent(self) -> float:
        """The exponent of the multiplication time if the scheme recurses alone."""
        return exponent_of(self.m, self.k, self.n, self.rank)

    @property
    def expression(self) -> str:
        """The composition in the language."""
        if not self.parts:
            return self.text
        left, right = self.parts
        # products bind tighter, and equal operators associate to the left
        first = left.expression if not left.parts or left.operator in (TENSOR, self.operator) else f"({left.expression})"
        second = right.expression if not right.parts or right.operator == TENSOR != self.operator else f"({right.expression})"
        return f"{first} {self.operator} {second}"

    def made(self) -> Scheme:
        """Build the scheme. Raises `BilinearError` if an operation does."""
        if not self.parts:
            return self.leaf if self.leaf is not None else classical(self.m, self.k, self.n)
        left, right = (part.made() for part in self.parts)
        return tensor(left, right) if self.operator == TENSOR else direct_sum(left, right, self.operator[2])

    def used(self) -> Iterator[SchemeTree]:
        """The leaves from left to right, each as often as it is used."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.used()

    def lines(self, indent: str = "") -> Iterator[str]:
        """The composition as a tree, one part a line."""
        yield f"{indent}{self.format} = {self.text or self.operator}"
        for part in self.parts:
            yield from part.lines(indent + "  ")


def tensor_complex(outer: AnyScheme, inner: AnyScheme) -> ComplexAlgorithm:
    """An algorithm for complex numbers (x) a block scheme, in either order: the order of their products makes no difference.

    Raises `BilinearError`: E236 if there is no block scheme, or if one of both is not over real numbers; E641 if the scheme is too large.
    """
    first, *others = (x for x in (outer, inner) if isinstance(x, ComplexAlgorithm))
    block = inner if first is outer else outer
    if others:
        raise fail("E236", f"{outer.name} and {inner.name} both multiply complex numbers", "compose one of them with block schemes")
    if not isinstance(block, Scheme):
        hint = "plans multiply complex matrices by digits: bilinear plan --dtype complex64 --products pairs"
        raise fail("E236", f"{first.name} multiplies complex numbers, and {block.name} digits", hint)
    for name, ring in ((first.name, first.core.ring), (block.name, block.ring)):
        if not is_real(ring) and not (ring.is_complex and name == block.name):
            raise fail("E236", f"{name} is over {ring}, and real and imaginary parts are real numbers", "take one over Z or Q")
    if first.inside is not None:
        block = tensor(first.inside, block) if first is outer else tensor(block, first.inside)
    made = replace(first, name=joined_name(outer, "x", inner), citation=joined_citations(outer, inner), inside=block)
    require_size(*made.sizes, made.rank, 0)
    return made


def complex_algorithm(block: Scheme, core: BilinearAlgorithm | None) -> ComplexAlgorithm:
    """An algorithm for complex numbers, or complex3, (x) a block scheme. Raises `BilinearError` as `tensor_complex` does."""
    core = three_products() if core is None else core
    return tensor_complex(ComplexAlgorithm(core.name, core), block)


def is_real(ring: Ring) -> bool:
    """True if the coefficients of a scheme over this ring are real numbers, and its products exact."""
    return not (ring.modulus or ring.is_approximate or ring.is_complex)


MOST_FORMATS = 32_768  # The most formats m x k x n up to the requested one.
MOST_SIZE = 128  # The most blocks along one side of the requested format.
Progress = Callable[[int, int], None]  # The number of formats done, and of all formats.


def best_compositions(
    shape: Triple, library: Iterable[tuple[str, Scheme]], progress: Progress = lambda done, of: None
) -> dict[Triple, SchemeTree]:
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
    best: dict[Triple, SchemeTree] = {}
    for done, (m, k, n) in enumerate(product(*(range(1, size + 1) for size in shape))):
        progress(done, volume)
        found = SchemeTree(m, k, n, m * k * n, (0, 0, m * (k - 1) * n), text=f"<{m},{k},{n}>")
        for leaf in known.get((m, k, n), ()):
            found = min(found, leaf, key=_worth)
        for operator, left, right in _pairs((m, k, n), best):
            rank = left.rank * right.rank if operator == TENSOR else left.rank + right.rank
            if rank <= found.rank:
                found = min(found, joined(operator, left, right), key=_worth)
        best[m, k, n] = found
    return best


def _worth(recipe: SchemeTree) -> Triple:
    return recipe.rank, sum(recipe.additions), recipe.leaves


def _pairs(shape: Triple, best: dict[Triple, SchemeTree]) -> Iterator[tuple[str, SchemeTree, SchemeTree]]:
    """Every split of one dimension and every factorisation, by the best compositions of the parts; the larger part comes first."""
    for axis, size in enumerate(shape):
        for small in range(1, size // 2 + 1):
            yield f"(+{AXES[axis]})", best[_resized(shape, axis, size - small)], best[_resized(shape, axis, small)]
    for m, k, n in product(*([d for d in range(size, 0, -1) if size % d == 0] for size in shape)):
        if (m, k, n) not in (shape, (1, 1, 1)):
            yield TENSOR, best[m, k, n], best[shape[0] // m, shape[1] // k, shape[2] // n]


def joined(operator: str, left: SchemeTree, right: SchemeTree) -> SchemeTree:
    """The composition of two parts, with the number of additions of `direct_sum` or `tensor`."""
    leaves = left.leaves + right.leaves
    if operator == TENSOR:
        m, k, n = left.m * right.m, left.k * right.k, left.n * right.n
        return SchemeTree(m, k, n, left.rank * right.rank, _tensor_additions(left, right), operator, (left, right), leaves=leaves)
    m, k, n = (x + y if operator[2] == axis else x for x, y, axis in zip(left.shape, right.shape, AXES, strict=True))
    a, b, c = (x + y for x, y in zip(left.additions, right.additions, strict=True))
    additions = (a, b, c + m * n if operator[2] == "k" else c)
    return SchemeTree(m, k, n, left.rank + right.rank, additions, operator, (left, right), leaves=leaves)


def _tensor_additions(left: SchemeTree, right: SchemeTree) -> Triple:
    """The additions of U, V and W when the factors run one after the other in the better order."""

    def cost(x: int, x_in: int, x_out: int, y: int, y_in: int, y_out: int) -> int:
        return min(x * y_in + x_out * y, y * x_in + y_out * x)

    (a, b, c), (d, e, f) = left.additions, right.additions
    return (
        cost(a, left.m * left.k, left.rank, d, right.m * right.k, right.rank),
        cost(b, left.k * left.n, left.rank, e, right.k * right.n, right.rank),
        cost(c, left.rank, left.m * left.n, f, right.rank, right.m * right.n),
    )


def _leaves(library: Iterable[tuple[str, Scheme]], largest: Triple) -> dict[Triple, list[SchemeTree]]:
    """The permutations of the schemes that fit, by format; only the schemes of least rank for each format."""
    least: dict[Triple, list[tuple[str, Scheme]]] = {}
    for text, scheme in library:
        least_side, middle, most_side = sorted((scheme.m, scheme.k, scheme.n))
        shape = least_side, middle, most_side
        rivals = least.get(shape, [])
        if any(x > y for x, y in zip(shape, sorted(largest), strict=True)) or (rivals and rivals[0][1].rank < scheme.rank):
            continue
        least[shape] = [(text, scheme)] if not rivals or scheme.rank < rivals[0][1].rank else [*rivals, (text, scheme)]
    found: dict[Triple, list[SchemeTree]] = {}
    for text, scheme in (entry for entries in least.values() for entry in entries):
        for expression, turned in _turned(text, scheme):
            plain = fold_bases(turned)
            additions = (plain.u.additions, plain.v.additions, plain.w.additions)
            leaf = SchemeTree(turned.m, turned.k, turned.n, turned.rank, additions, text=expression, leaf=turned)
            found.setdefault((turned.m, turned.k, turned.n), []).append(leaf)
    return found


def _turned(text: str, scheme: Scheme) -> Iterator[tuple[str, Scheme]]:
    rotations = (text, f"rotate({text})", f"rotate(rotate({text}))")
    expressions = (*rotations, *(f"transpose({rotated})" for rotated in rotations))
    yield from sorted(zip(expressions, permutations(scheme), strict=True), key=lambda pair: pair[0].count("("))


def _resized(shape: Triple, axis: int, size: int) -> Triple:
    x, y, z = (size if i == axis else old for i, old in enumerate(shape))
    return x, y, z
