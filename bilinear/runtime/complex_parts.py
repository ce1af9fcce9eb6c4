"""Complex matrices for schedules of real products: their real and imaginary parts, and factors that are not real."""

from __future__ import annotations

from typing import NamedTuple

from bilinear.errors import fail
from bilinear.frontend import Loaded
from bilinear.ir.matrix import Array, Call, Factor, Matrix, call_of


class Turns(NamedTuple):
    """alpha and beta of a call, of which a schedule of real products takes real ones.

    An alpha that is not real multiplies the result afterwards, and a beta that is not real multiplies C before.
    """

    alpha: Factor
    turned: Factor | None
    beta_is_real: bool
    needs_result: bool
    """Whether the product must be computed aside from C: it is to be turned, and C is not."""

    @classmethod
    def of(cls, alpha: Array, beta: Array) -> Turns:
        """The factors, as numbers of the product's type and of C's; those of real arrays stay as they are."""
        if not _is_complex(alpha) and not _is_complex(beta):
            return cls(alpha, None, True, False)
        turned = alpha if alpha.imag != 0 else None
        return cls(alpha.real if turned is None else alpha.real.dtype.type(1), turned, not beta.imag, turned is not None and beta != 0)

    def call_of(self, a: Array, b: Array, c: Array, beta: Array, workspace: Matrix | None) -> Call:
        """The call of a schedule on these arrays, after C is multiplied by a beta that is not real."""
        call = call_of(a, b, c, self.alpha, beta, workspace)
        if c.dtype.kind != "c":
            return call
        if beta != 0 and not self.beta_is_real:
            c *= beta
            beta = beta.dtype.type(1)
        (x, xi), (y, yi), (z, zi) = call.a.parts, call.b.parts, call.c.parts
        kept: Array = getattr(beta, "real", beta)
        return Call(x, y, z, self.alpha, kept, workspace, None, (xi, yi, zi))

    def finish(self, c: Array) -> None:
        """Multiply the result by an alpha that is not real."""
        if self.turned is not None:
            c *= self.turned


def require_complex(algorithm: object, *arrays: Array) -> None:
    """Refuse (E799) an algorithm for complex numbers where neither an operand nor the result is complex."""
    is_real = not any(x is not None and x.dtype.kind == "c" for x in arrays)
    if is_real and isinstance(algorithm, Loaded) and algorithm.complex_core is not None:
        what = f"{algorithm.complex_core.name} multiplies complex numbers, and these arrays are of {arrays[0].dtype}"
        inner = algorithm.scheme.name
        raise fail("E799", what, f"name the algorithm that runs its real products: {inner}", "or convert the operands to a complex type")


def formed(conjugated: str, a: Array, b: Array) -> tuple[Array, Array]:
    """The operands with the conjugates of those that are named, as copies, for the library's multiply."""
    return a.conj() if "A" in conjugated else a, b.conj() if "B" in conjugated else b


def _is_complex(factor: Array) -> bool:
    return getattr(getattr(factor, "dtype", None), "kind", "") == "c"
