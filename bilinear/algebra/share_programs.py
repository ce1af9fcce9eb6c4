"""Turn the values that a search found into a program with few scalings and without steps that are read only once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from bilinear.algebra.maps import without_copies
from bilinear.algebra.share_search import Origin
from bilinear.algebra.share_values import Rows, magnitude
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, Symbolic, exact

SWEEPS = 8
"""The number of times that every step is rescaled."""


def program_of(inputs: int, rows: Rows, origins: Sequence[Origin]) -> LinearMap:
    """The program that makes these values as they were found, over the map's inputs."""
    multiples: dict[int, tuple[int, Coefficient]] = dict(zip(rows.units, rows.atoms, strict=True))
    steps: list[Form] = []
    for origin in origins:
        terms = zip((origin.first, origin.second), origin.pair, strict=True)
        steps.append(form((multiples[v][0], multiples[v][1] * Fraction(p, origin.multiple)) for v, p in terms))
        multiples[origin.value] = (inputs + len(steps) - 1, 1)
    outputs = tuple(form([(multiples[v][0], multiples[v][1] * factor)]) if v else () for v, factor in rows.packed)
    return tidied(LinearMap(inputs, outputs, tuple(steps)))


def tidied(linear: LinearMap) -> LinearMap:
    """The same map with as many additions and no more scalings; each step is read several times."""
    return _with_shared_multiples(_with_single_readers_joined(without_copies(_with_few_scalings(linear))))


def partial_sums(linear: LinearMap) -> tuple[Form, ...]:
    """Every value that a program holds while adding up its sums term by term, as forms over the inputs."""
    steps: list[Form] = []
    place = list(range(linear.inputs))
    for row in linear.steps + linear.outputs:
        terms = [(place[i], c) for i, c in row]
        for more in terms[1:]:
            steps.append(form([terms[0], more]))
            terms[0] = (linear.inputs + len(steps) - 1, 1)
        if len(terms) != 1 or terms[0][1] != 1:
            steps.append(form(terms[:1]))
            terms = [(linear.inputs + len(steps) - 1, 1)]
        place.append(terms[0][0])
    return LinearMap(linear.inputs, tuple(((linear.inputs + i, 1),) for i in range(len(steps))), tuple(steps)).matrix


def _with_few_scalings(linear: LinearMap) -> LinearMap:
    """Scale each step so that it and its readers have the fewest coefficients other than 1 and -1."""
    rows = [dict(row) for row in linear.steps + linear.outputs]
    readers: dict[int, list[dict[int, Coefficient]]] = {linear.inputs + i: [] for i in range(len(linear.steps))}
    for row in rows:
        for index in row:
            if index >= linear.inputs:
                readers[index].append(row)
    for _ in range(SWEEPS):
        changes = [_rescale(rows[i], readers[linear.inputs + i], linear.inputs + i) for i in range(len(linear.steps))]
        if not any(changes):
            break
    forms = [form(row) for row in rows]
    return LinearMap(linear.inputs, tuple(forms[len(linear.steps) :]), tuple(forms[: len(linear.steps)]))


def _rescale(step: dict[int, Coefficient], readers: Sequence[dict[int, Coefficient]], number: int) -> bool:
    candidates = {1 / Fraction(c) for c in step.values() if not isinstance(c, Symbolic)}
    candidates |= {Fraction(c) for row in readers if not isinstance(c := row[number], Symbolic)}

    def scalings(factor: Fraction) -> int:
        return _scalings(c * factor for c in step.values()) + _scalings(row[number] / factor for row in readers)

    best = min(sorted({abs(c) for c in candidates}), key=scalings, default=Fraction(1))
    if scalings(best) >= scalings(Fraction(1)):
        return False
    for index, c in step.items():
        step[index] = exact(c * best)
    for row in readers:
        row[number] = exact(row[number] / best)
    return True


def _scalings(coefficients: Iterable[Coefficient]) -> int:
    return sum(c not in (1, -1) for c in coefficients)


def _with_single_readers_joined(linear: LinearMap) -> LinearMap:
    """Merge a step that is read once, with coefficient 1 or -1, into its reader if they share no term."""
    rows = linear.steps + linear.outputs
    readers = Counter(index for row in rows for index, _ in row)
    joined: list[Form] = []
    for row in rows:
        terms = dict(row)
        for index, c in row:
            inner = joined[index - linear.inputs] if index >= linear.inputs else ()
            if readers[index] == 1 and inner and c in (1, -1) and terms.keys().isdisjoint(i for i, _ in inner):
                del terms[index]
                terms |= {i: c * d for i, d in inner}
        joined.append(form(terms))
    return without_copies(LinearMap(linear.inputs, tuple(joined[len(linear.steps) :]), tuple(joined[: len(linear.steps)])))


def _with_shared_multiples(linear: LinearMap) -> LinearMap:
    """A multiple that is read several times becomes a step where it is first read."""
    rows = linear.steps + linear.outputs
    wanted = Counter((index, magnitude(c)) for row in rows for index, c in row if c not in (1, -1))
    place = list(range(linear.inputs))
    made: dict[tuple[int, Coefficient], int] = {}
    steps: list[Form] = []
    outputs: list[Form] = []
    for number, row in enumerate(rows):
        terms = []
        for index, c in row:
            key = (index, magnitude(c))
            if wanted[key] > 1 and key not in made:
                steps.append(((place[index], key[1]),))
                made[key] = linear.inputs + len(steps) - 1
            terms.append((made[key], 1 if c == key[1] else -1) if key in made else (place[index], c))
        if number < len(linear.steps):
            steps.append(form(terms))
            place.append(linear.inputs + len(steps) - 1)
        else:
            outputs.append(form(terms))
    return LinearMap(linear.inputs, tuple(outputs), tuple(steps))
