"""Identify the products of a schedule among those of its scheme."""

from __future__ import annotations

from bilinear.errors import Diagnostic
from bilinear.ir.linear import Form
from bilinear.ir.schedule import Product
from bilinear.ir.scheme import Scheme
from bilinear.verify.elements import Number
from bilinear.verify.hazards import name_of
from bilinear.verify.symbols import LETTERS, Symbols, Value

Signature = tuple[tuple[int, Number | str | int], ...]
"""A form up to a factor: block numbers from 0, and coefficients starting with 1."""


class Identifier:
    """The products of one scheme, found by their factors."""

    def __init__(self, scheme: Scheme, symbols: Symbols) -> None:
        self.symbols = symbols
        self.scheme = scheme.name
        u, v, _ = scheme.tables
        pairs = zip(u, v, scheme.products, strict=True)
        self.known = {(self._of_form(a), self._of_form(b)): name for a, b, name in pairs}

    def identify(self, number: int, product: Product, left: Value, right: Value) -> str | Diagnostic:
        """The name of the scheme's product that equals this one up to a factor; if none does, a diagnostic (E403)."""
        if not left or not right:
            return Diagnostic("E403", f"stage {number}: the product {name_of(product)} is always zero", product.span)
        found = self._of_value(left, "A"), self._of_value(right, "B")
        if found in self.known:
            return self.known[found]
        nearest = [name for (a, b), name in self.known.items() if a == found[0] or b == found[1]]
        hints = (f"one factor is that of {' and of '.join(nearest)}",) if nearest else ()
        message = f"stage {number}: {name_of(product)} is not a product of {self.scheme}"
        note = f"it multiplies ({self.symbols.text(left)}) by ({self.symbols.text(right)})"
        return Diagnostic("E403", message, product.span, notes=(note,), hints=hints)

    def _of_form(self, form: Form) -> Signature:
        scalars = [(i, scalar) for i, c in form if (scalar := self.symbols.scalar(c))]
        return tuple((i, self.symbols.key(c / scalars[0][1])) for i, c in scalars)

    def _of_value(self, value: Value, side: str) -> Signature:
        """The signature of a form. If its coefficients hold different powers of alpha and beta, it matches no product of a scheme."""
        letter = LETTERS[side]
        if len({word[:2] for word in value}) > 1:
            return ((-1, 0),)
        terms = sorted((word[letter] - 1, c) for word, c in value.items())
        return tuple((i, self.symbols.key(c / terms[0][1])) for i, c in terms)
