"""The proof of a digit scheme: its products of digits give x*y up to a named remainder, or modulo every p, exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from bilinear.analysis.brent import common_denominator, residual
from bilinear.errors import fail
from bilinear.ir.bilinear_map import BilinearAlgorithm
from bilinear.ir.digits import DigitScheme, common_factors, modular_product
from bilinear.ir.ring import Ring
from bilinear.verify.bilinear_map import MapProof, prove_map
from bilinear.verify.scheme import SchemeProof, prove_scheme


@dataclass(frozen=True)
class DigitProof:
    """The decision about a digit scheme.

    `maps` are the proofs for two numbers: one for floating-point digits, whose remainder is the exact error, and one for each modulus p of
    residues, that the products put together are x*y modulo p. `above` and `inside` are the proofs of the block schemes; `failures` says in
    words what does not hold. A composition is the tensor product of its parts, so it holds if they do, with the order of the digits' error.
    """

    scheme: DigitScheme
    maps: tuple[MapProof, ...]
    above: SchemeProof | None
    inside: SchemeProof | None
    failures: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """True if nothing failed."""
        return not self.failures

    @property
    def equations(self) -> int:
        """The number of coefficients that were compared."""
        target = self.scheme.core.target
        digits = len(target.left) * len(target.right) * len(target.outputs) * len(self.maps)
        return digits + sum(proof.equations for proof in (self.above, self.inside) if proof is not None)

    @property
    def order(self) -> int | None:
        """The order of the error in lambda; None without an error."""
        return self.maps[0].order if not self.scheme.representation.is_modular else None

    def require(self) -> None:
        """Raise `BilinearError` (E304) if the scheme does not multiply."""
        if self.holds:
            return
        places = self.scheme.places
        hint = "compare the products with the sum over all digits: lambda^i * lambda^j * A.i * B.j"
        modular = "every denominator must be coprime to every modulus, and the moduli to each other"
        raise fail(
            "E304",
            f"{self.scheme.name} does not multiply numbers of {self.scheme.representation.of}: {self.failures[0]}",
            modular if self.scheme.representation.is_modular else hint,
            span=places.header if places is not None else self.scheme.representation.span,
            notes=self.failures[1:6],
        )


def prove_digits(scheme: DigitScheme) -> DigitProof:
    """Decide a digit scheme, exactly. Raises `BilinearError` if a part is too large to prove (E303) or in another ring (E302).

    Floating-point digits: the products equal x*y below the order that cutting leaves out anyway. Residues: the moduli are coprime in pairs,
    the weights of the Chinese remainder theorem are 1 modulo their own p and 0 modulo the others, and a block scheme inside holds modulo
    every p. Block schemes above must hold for real numbers.
    """
    representation = scheme.representation
    maps = tuple(map(prove_map, maps_of(scheme)))
    above = prove_scheme(scheme.above) if scheme.above is not None else None
    inside = prove_scheme(scheme.inside) if scheme.inside is not None else None
    failures = [f"{p} and {q} share a factor" for p, q in common_factors(representation.moduli)]
    failures += [f"{proof.title}: the coefficient of {d}" for proof in maps for d in proof.differences]
    blocks = [proof for proof in (above, inside) if proof is not None and not proof.holds]
    failures += [f"{proof.scheme} does not multiply: {proof.failures[0]}" for proof in blocks]
    failures += _not_inside(scheme)
    return DigitProof(scheme, maps, above, inside, tuple(failures))


def maps_of(scheme: DigitScheme) -> tuple[BilinearAlgorithm, ...]:
    """The algorithms for two numbers that are proved: the core, for residues modulo every p, where x is the residue of its digits."""
    representation, core = scheme.representation, scheme.core
    if not representation.is_modular:
        return (core,)
    targets = ((p, modular_product(representation, p)) for p in representation.moduli)
    return tuple(replace(core, target=target, ring=Ring(f"Z/{p}")) for p, target in targets)


def _not_inside(scheme: DigitScheme) -> list[str]:
    """Why a block scheme cannot run on residues: the moduli for which it does not hold."""
    inside = scheme.inside
    if inside is None:
        return []
    held, denominator = residual(inside).modulus, common_denominator(inside) or 0
    wrong = [p for p in scheme.representation.moduli if inside.ring.generator or held % p or gcd(denominator, p) > 1]
    return [f"{inside.name} does not hold modulo {p}" for p in wrong]
