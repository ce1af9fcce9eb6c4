"""Combine straight-line programs of linear maps: in sequence, side by side, as Kronecker products, transposed; and the maps of a scheme.

Each function keeps the sums that its parts share. Steps of the result have no names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bilinear.ir.linear import Form, LinearMap, form, identity, substitute
from bilinear.ir.number import Coefficient, residue
from bilinear.ir.scheme import Bases, Scheme


def number_of_terms(linear: LinearMap) -> int:
    """The number of terms in all steps and outputs."""
    return sum(map(len, linear.steps + linear.outputs))


def table_of(linear: LinearMap) -> LinearMap:
    """The same map without steps."""
    return LinearMap(linear.inputs, linear.matrix)


def after(first: LinearMap, second: LinearMap) -> LinearMap:
    """The composition of two maps: outputs of the first become steps that the second reads."""
    offset = first.inputs + len(first.steps)
    place = range(offset, offset + second.inputs + len(second.steps))
    moved = [_renumbered(row, place) for row in second.steps + second.outputs]
    steps = first.steps + first.outputs + tuple(moved[: len(second.steps)])
    return without_copies(LinearMap(first.inputs, tuple(moved[len(second.steps) :]), steps))


def together(inputs: int, parts: Sequence[tuple[LinearMap, Sequence[int]]]) -> LinearMap:
    """The outputs of several maps concatenated; each map reads the `inputs` values whose numbers are given with it."""
    steps: list[Form] = []
    outputs: list[Form] = []
    for linear, read in parts:
        place = [*read, *range(inputs + len(steps), inputs + len(steps) + len(linear.steps))]
        steps += [_renumbered(row, place) for row in linear.steps]
        outputs += [_renumbered(row, place) for row in linear.outputs]
    return LinearMap(inputs, tuple(outputs), tuple(steps))


def kronecker(first: LinearMap, second: LinearMap) -> LinearMap:
    """The Kronecker product: input i of the first and j of the second are number i * second.inputs + j, and outputs likewise.

    It runs as (first x I) and then (I x second), or in the other order, whichever has fewer additions.
    """
    if _additions_first_outermost(first, second) <= _additions_first_outermost(second, first):
        return _kronecker(first, second)
    swapped = _kronecker(second, first)
    read = [i * second.inputs + j for j in range(second.inputs) for i in range(first.inputs)]
    rows = range(len(first.outputs))
    return reordered(reading(swapped, read), [q * len(rows) + o for o in rows for q in range(len(second.outputs))])


def _additions_first_outermost(first: LinearMap, second: LinearMap) -> int:
    """The additions of `_kronecker`, before equal sums are merged."""
    return first.additions * second.inputs + len(first.outputs) * second.additions


def _kronecker(first: LinearMap, second: LinearMap) -> LinearMap:
    """The first map on every inner value, then the second on every outer one."""
    inner, outer = second.inputs, len(first.outputs)
    every = together(first.inputs * inner, [(first, range(j, first.inputs * inner, inner)) for j in range(inner)])
    each = together(outer * inner, [(second, range(o, outer * inner, outer)) for o in range(outer)])
    return after(every, each)


def reading(linear: LinearMap, place: Sequence[int]) -> LinearMap:
    """The same map with its input i taken from `place[i]`, a permutation."""
    return together(linear.inputs, [(linear, place)])


def reordered(linear: LinearMap, order: Sequence[int]) -> LinearMap:
    """The same map with its output `order[i]` at position i."""
    return LinearMap(linear.inputs, tuple(linear.outputs[i] for i in order), linear.steps, linear.names)


def transposed(linear: LinearMap) -> LinearMap:
    """The transposed map, by running the program backwards; if no value is unused, additions + inputs = its additions + its outputs.

    This is the transposition principle (Bordewijk 1956; Fiduccia 1973): each value becomes the sum of its former readers.
    """
    outputs, values = len(linear.outputs), linear.inputs + len(linear.steps)
    readers: list[list[tuple[int, int]]] = [[] for _ in range(values)]  # (number of the reader, its coefficient's place) by value
    rows = linear.outputs + tuple(reversed(linear.steps))
    for reader, row in enumerate(rows):
        for place, (value, _) in enumerate(row):
            readers[value].append((reader, place))
    forms = [form((reader, rows[reader][place][1]) for reader, place in found) for found in readers]
    steps = tuple(reversed(forms[linear.inputs :]))
    return without_copies(LinearMap(outputs, tuple(forms[: linear.inputs]), steps))


def without_copies(linear: LinearMap) -> LinearMap:
    """The same map without steps that are unused, zero, or equal to another value up to sign."""
    values: list[Form] = [((i, 1),) for i in range(linear.inputs)]
    steps: dict[int, Form] = {}
    for number, step in enumerate(linear.steps, linear.inputs):
        row = _written_out(step, values)
        copies = not row or (len(row) == 1 and row[0][1] in (1, -1))
        values.append(row if copies else ((number, 1),))
        if not copies:
            steps[number] = row
    outputs = [_written_out(output, values) for output in linear.outputs]
    read = {index for output in outputs for index, _ in output}
    for number in reversed(steps):
        if number in read:
            read.update(index for index, _ in steps[number])
    kept = [number for number in steps if number in read]
    place = {i: i for i in range(linear.inputs)} | {number: linear.inputs + new for new, number in enumerate(kept)}
    moved = tuple(tuple((place[i], c) for i, c in steps[number]) for number in kept)
    return LinearMap(linear.inputs, tuple(tuple((place[i], c) for i, c in output) for output in outputs), moved)


def _written_out(row: Form, values: Sequence[Form]) -> Form:
    return values[row[0][0]] if len(row) == 1 and row[0][1] == 1 else substitute(row, values)


def _renumbered(row: Form, place: Sequence[int]) -> Form:
    if len(row) == 1:  # usually
        return ((place[row[0][0]], row[0][1]),)
    return tuple(sorted((place[i], coefficient) for i, coefficient in row))


def fold_bases(scheme: Scheme) -> Scheme:
    """The same scheme without bases: their forms become the first steps of u and v, and the outputs of w become steps of the new w.

    Before: any scheme. After: `bases` is None, and the tables U, V and W are the same.
    """
    if scheme.bases is None:
        return scheme
    a, b, c = scheme.bases.a, scheme.bases.b, scheme.bases.c
    return replace(scheme, u=after(a, scheme.u), v=after(b, scheme.v), w=after(scheme.w, c), bases=None)


def on_blocks(scheme: Scheme) -> Scheme:
    """The scheme itself if its changes of basis are square on the blocks, else the scheme without them."""
    bases = scheme.bases
    if bases is None or all(linear.inputs == len(linear.outputs) for linear in (bases.a, bases.b, bases.c)):
        return scheme
    return fold_bases(scheme)


def bases_of(scheme: Scheme) -> Bases:
    """The changes of basis; the identity if there are none."""
    m, k, n = scheme.m, scheme.k, scheme.n
    return scheme.bases or Bases(identity(m * k), identity(k * n), identity(m * n))


def maps_of(scheme: Scheme) -> tuple[LinearMap, ...]:
    """The maps of a scheme, including its changes of basis."""
    bases = scheme.bases
    return (scheme.u, scheme.v, scheme.w, *(() if bases is None else (bases.a, bases.b, bases.c)))


def reduced(scheme: Scheme) -> Scheme:
    """A scheme over Z/p with every coefficient reduced to its residue of least size; other schemes unchanged."""
    p = scheme.ring.modulus
    if not p:
        return scheme
    bases = scheme.bases
    if bases is not None:
        bases = Bases(_reduced(bases.a, p), _reduced(bases.b, p), _reduced(bases.c, p))
    return replace(scheme, u=_reduced(scheme.u, p), v=_reduced(scheme.v, p), w=_reduced(scheme.w, p), bases=bases)


def _reduced(linear: LinearMap, p: int) -> LinearMap:
    return linear.mapped(lambda row: form((index, least_residue(c, p)) for index, c in row))


def least_residue(value: Coefficient, p: int) -> int:
    """The residue of least absolute value; of two, the positive one."""
    found = residue(value, p)
    return found if 2 * found <= p else found - p
