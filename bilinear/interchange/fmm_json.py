"""Read the JSON files of the FastMatrixMultiplication collection (https://github.com/dronperminov/FastMatrixMultiplication).

`n` is the list m, k, n and `m` the rank; without them the rows, or the file's name, give them. `u`, `v` and `w` have a row for each
product, over the blocks of A, those of B, and those of C transposed; `u_sparse`, `v_sparse` and `w_sparse` list the index and the value of
what is not 0 in such a row. In reduced files rows are lists of {index, value}; `u_fresh`, `v_fresh` and `w_fresh` define temporaries that
follow the inputs in the numbering, one over those before it; there `w` has a row for each block of C transposed, over both.
"""

from __future__ import annotations

import re
from pathlib import Path

from bilinear.algebra.maps import transposed
from bilinear.errors import BilinearError, Diagnostic, fail
from bilinear.interchange.arrays import scheme_from_arrays
from bilinear.interchange.reader_parts import (
    MOST_BLOCKS,
    MOST_NONZEROS,
    MOST_PRODUCTS,
    Asked,
    Dims,
    Maps,
    Reading,
    assemble,
    by_products,
    dims_of,
    parse_rational,
    parsed_json,
    read_text,
)
from bilinear.ir.linear import Form, LinearMap, form
from bilinear.ir.number import Coefficient, exact
from bilinear.ir.ring import RINGS, Ring, parse_ring
from bilinear.ir.scheme import Scheme
from bilinear.source import Source, Span

_KEYS = r'"(?:[uvw]|[UVW]|[uvw]_sparse)"\s*:|"n"\s*:\s*\['
_HINT = "a scheme in JSON has n, m, u, v and w, or u_sparse, v_sparse and w_sparse, or U, V and W"
_NAMED = re.compile(r"([1-9][0-9]{0,2})x([1-9][0-9]{0,2})x([1-9][0-9]{0,2})(?![0-9])")


def read_json(path: Path, asked: Asked) -> Reading:
    """The scheme in a JSON file: of three arrays U, V and W, or of the collection, by `read_fmm_json`, whose errors it raises, and E357."""
    file = _File(read_text(path))
    if not file.data.keys() >= set("UVW"):
        return Reading(read_fmm_json(path), True)
    u, v, w = (
        [[file.number(f"{key}[{p}]", key, x) for x in row] if isinstance(row, list) else [] for p, row in enumerate(file.rows(key))]
        for key in "UVW"
    )
    return Reading(scheme_from_arrays(u, v, w, None, asked.ring or file.ring(), name=path.stem), False)


def read_fmm_json(path: str | Path) -> Scheme:
    """The scheme in a JSON file of the collection; temporaries of a reduced file become named steps.

    Files marked `z2` are over Z/2, others over Q. Raises `BilinearError`: E251 if the file cannot be read, E252 if a row or value is
    malformed, E253 if the sizes do not fit, E254 if a key is missing, E255 if it is not JSON, E653 if
    it has no key of a scheme.
    """
    where = Path(path)
    file = _File(read_text(where))
    (m, k, n), rank = file.dims(), file.rank()
    sizes = {"u": m * k, "v": k * n, "w": m * n}
    if "u_sparse" in file.data:
        tables = [file.sparse_map(f"{table}_sparse", inputs, rank, "").outputs for table, inputs in sizes.items()]
        return by_products(file.source, where.stem, (m, k, n), tables, True, file.ring())
    reduced = any(f"{table}_fresh" in file.data for table in sizes)
    left = file.sparse_map("u", sizes["u"], rank, "X") if reduced else file.dense_map("u", sizes["u"], rank)
    right = file.sparse_map("v", sizes["v"], rank, "Y") if reduced else file.dense_map("v", sizes["v"], rank)
    last = file.sparse_map("w", rank, sizes["w"], "Z") if reduced else transposed(file.dense_map("w", sizes["w"], rank))
    result = LinearMap(rank, tuple(last.outputs[j * m + i] for i in range(m) for j in range(n)), last.steps, last.names)
    return assemble(Maps(file.source, where.stem, left, right, result, file.ring()), (m, k, n))


class _File:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.data = parsed_json(source, _KEYS, _HINT)
        if not self.data.keys() & {"n", *"uvwUVW", "u_sparse", "v_sparse", "w_sparse"}:
            raise fail("E653", f"{source.name} holds no scheme", _HINT)

    def wrong(self, key: str, what: str, code: str = "E252", hint: str = "") -> BilinearError:
        """An error about the value of a key; it points at the key."""
        match = re.search(rf'"{key}"\s*:', self.source.text)
        span = Span(self.source, match.start(), match.start() + len(key) + 2) if match else None
        where = "" if span is not None else f"{self.source.name}: "
        return BilinearError(Diagnostic(code, where + what, span, label="of this key" if span else "", hints=(hint,) if hint else ()))

    def rows_under(self, key: str) -> list[object]:
        if key not in self.data:
            raise self.wrong(key, f"the key {key!r} is missing", "E254", "a scheme has n, m, u, v and w")
        value = self.data[key]
        if not isinstance(value, list):
            raise self.wrong(key, f"{key} is not a list")
        return value

    def dims(self) -> Dims:
        sizes = self.rows_under("n") if "n" in self.data else self.sizes_without_n()
        known = [size for size in sizes if isinstance(size, int) and 1 <= size <= MOST_BLOCKS]
        if len(sizes) != 3 or len(known) != 3:
            raise self.wrong(
                "n", "n is not a list of three positive integers", "E253", f"at most {MOST_BLOCKS}: rows of A, rows of B, columns of B"
            )
        m, k, n = known
        if max(m * k, k * n, m * n) > MOST_BLOCKS:
            raise self.wrong(
                "n", f"the format is too large: {m * k}, {k * n} and {m * n} blocks", "E253", f"at most {MOST_BLOCKS} blocks a matrix"
            )
        return m, k, n

    def sizes_without_n(self) -> list[object]:
        """m, k and n from the lengths of the first rows, else from the name of the file: `4x5x6_m90_Z.json`."""
        first = [rows[0] if isinstance(rows := self.data.get(key), list) and rows else None for key in "uvw"]
        lengths = [len(row) for row in first if isinstance(row, list)]
        reduced = any(f"{key}_fresh" in self.data for key in "uvw")
        found = dims_of(lengths[0], lengths[1], lengths[2]) if len(lengths) == 3 and not reduced else None
        named = _NAMED.match(Path(self.source.name).name)
        if found is None and named is None:
            raise self.wrong("n", "the key 'n' is missing", "E254", "a scheme has n, m, u, v and w; or name the file 4x5x6_...")
        return list(found) if found is not None else [int(size) for size in named.groups()] if named is not None else []

    def rank(self) -> int:
        """The number of products: `m`, else that of the rows."""
        rows = self.data.get("u_sparse", self.data.get("u"))
        rank = self.data.get("m", len(rows) if isinstance(rows, list) and "n" not in self.data else None)
        if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MOST_PRODUCTS:
            raise self.wrong(
                "m", "m is not the number of products", "E254" if rank is None else "E253", f"an integer from 1 to {MOST_PRODUCTS}"
            )
        return rank

    def ring(self) -> Ring:
        """Z/2 if the file is marked so, the ring named as our writers do, else Q."""
        said = self.data.get("ring")
        if said is not None and (not isinstance(said, str) or parse_ring(said[:40]) is None):
            raise self.wrong("ring", f"ring is none of {RINGS}")
        return Ring("Z/2") if self.data.get("z2") is True else (parse_ring(said) if said else None) or Ring()

    def dense_map(self, key: str, inputs: int, rank: int) -> LinearMap:
        rows: list[list[object]] = []
        for number, row in enumerate(self.rows(key, rank)):
            if not isinstance(row, list) or len(row) != inputs:
                raise self.wrong(key, f"row {number + 1} of {key} is not a list of {inputs} numbers", "E253")
            rows.append(row)
        numbers = [[(i, self.number(f"{key}[{p}][{i}]", key, value)) for i, value in enumerate(row)] for p, row in enumerate(rows)]
        return self.require_small(key, LinearMap(inputs, tuple(tuple((i, c) for i, c in row if c) for row in numbers)))

    def sparse_map(self, key: str, inputs: int, outputs: int, prefix: str) -> LinearMap:
        fresh = self.rows(f"{key}_fresh") if f"{key}_fresh" in self.data else []
        steps = tuple(self.sparse(f"{key}_fresh", i, row, inputs + i) for i, row in enumerate(fresh))
        rows = self.rows(key, outputs)
        forms = tuple(self.sparse(key, i, row, inputs + len(steps)) for i, row in enumerate(rows))
        return self.require_small(key, LinearMap(inputs, forms, steps, tuple(f"{prefix}{i + 1}" for i in range(len(steps)))))

    def rows(self, key: str, count: int | None = None) -> list[object]:
        rows = self.rows_under(key)
        if count is not None and len(rows) != count:
            raise self.wrong(key, f"{key} has {len(rows)} rows, not {count}", "E253")
        if len(rows) > MOST_PRODUCTS:
            raise self.wrong(key, f"{key} has more than {MOST_PRODUCTS} rows")
        return rows

    def sparse(self, key: str, number: int, row: object, most: int) -> Form:
        """A row of {index, value}, or of [index, value], over `most` values."""
        pairs = [pair for term in row if (pair := _pair(term)) is not None] if isinstance(row, list) else []
        if not isinstance(row, list) or len(pairs) != len(row):
            raise self.wrong(key, f"row {number + 1} of {key} is not a list of index and value")
        for index, _ in pairs:
            if not 0 <= index < most:
                raise self.wrong(key, f"row {number + 1} of {key} reads value {str(index)[:40]}, but only {most} come before it")
        return form((index, self.number(f"{key}[{number}]", key, value)) for index, value in pairs)

    def require_small(self, key: str, linear: LinearMap) -> LinearMap:
        if sum(map(len, linear.steps + linear.outputs)) > MOST_NONZEROS:
            raise self.wrong(key, f"{key} has more than {MOST_NONZEROS} coefficients other than 0")
        return linear

    def number(self, place: str, key: str, value: object) -> Coefficient:
        """A number: a JSON integer, or a fraction or decimal in a string."""
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        found = parse_rational(value) if isinstance(value, str) else None
        if found is None:
            raise self.wrong(key, f"{place} is not a number: {str(value)[:40]!r}", hint='numbers are integers or fractions: "-1/2"')
        return exact(found)


def _pair(term: object) -> tuple[int, object] | None:
    if isinstance(term, dict) and term.keys() == {"index", "value"}:
        index, value = term["index"], term["value"]
    elif isinstance(term, list) and len(term) == 2:
        index, value = term
    else:
        return None
    return (index, value) if isinstance(index, int) and not isinstance(index, bool) else None
