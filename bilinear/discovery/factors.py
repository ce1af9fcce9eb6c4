"""Factors of products as rows of numbers: a scheme's, and a scheme of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bilinear.algebra.credits import numbered
from bilinear.algebra.maps import transposed
from bilinear.errors import fail
from bilinear.ir.linear import LinearMap
from bilinear.ir.number import Coefficient, Symbolic, residue
from bilinear.ir.ring import Ring
from bilinear.ir.scheme import Scheme

Factors = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]
"""U, V and the transpose of W: a row for each product."""


def coefficients_of(scheme: Scheme) -> list[list[list[Coefficient]]]:
    """U, V and the transpose of W as dense rows, one for each product; sums and changes of basis are expanded."""
    u, v, w = scheme.tables
    of_c = transposed(LinearMap(scheme.rank, w)).outputs
    sizes = (scheme.m * scheme.k, scheme.k * scheme.n, scheme.m * scheme.n)
    return [[_dense(dict(row), size) for row in table] for table, size in zip((u, v, of_c), sizes, strict=True)]


def _dense(row: dict[int, Coefficient], size: int) -> list[Coefficient]:
    return [row.get(i, 0) for i in range(size)]


def residues_of(scheme: Scheme, code: str) -> Factors:
    """The factors modulo 2. Raises `BilinearError` with this code if a coefficient has no residue there."""
    tables = coefficients_of(scheme)
    modulus = scheme.ring.modulus
    for value in (value for table in tables for row in table for value in row):
        if isinstance(value, Symbolic) or modulus % 2 or value.denominator % 2 == 0:
            message = f"{scheme.name} is over {scheme.ring}, and its coefficients have no residues modulo 2"
            raise fail(code, message, "give a scheme over Z/2, over Z, or over Q with odd denominators", notes=(f"one is {value}",))
    u, v, w = (np.array([[residue(value, 2) for value in row] for row in table], np.uint64) for table in tables)
    return u, v, w


def scheme_of(like: Scheme, tables: Sequence[Sequence[Sequence[Coefficient]]], ring: Ring) -> Scheme:
    """A scheme of the format and the name of another, of these factors: U, V and the transpose of W."""
    maps = [LinearMap(len(table[0]), tuple(tuple((i, x) for i, x in enumerate(row) if x) for row in table)) for table in tables]
    u, v, of_c = maps
    products = numbered(len(tables[0]))
    return replace(like, u=u, v=v, w=transposed(of_c), products=products, ring=ring, places=None, bases=None)
