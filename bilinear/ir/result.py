"""The value that a schedule leaves in C."""

from __future__ import annotations

from dataclasses import dataclass

from bilinear.ir.number import Coefficient, Symbolic, is_negative


@dataclass(frozen=True)
class Result:
    """The final value of C: alpha*A*B + beta*C; each factor is a number, or the generator `alpha` or `beta`."""

    alpha: Coefficient = 1
    beta: Coefficient = 0

    def __str__(self) -> str:
        product = _scaled(self.alpha, "A*B")
        if not self.beta:
            return f"C = {product}"
        sign, size = ("-", -self.beta) if is_negative(self.beta) else ("+", self.beta)
        return f"C = {product} {sign} {_scaled(size, 'C')}"


def _scaled(coefficient: Coefficient, name: str) -> str:
    if coefficient in (1, -1):
        return f"{'-' if coefficient == -1 else ''}{name}"
    text = str(coefficient)
    return f"({text})*{name}" if isinstance(coefficient, Symbolic) and len(coefficient.terms) > 1 else f"{text}*{name}"
