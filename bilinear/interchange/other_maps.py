"""What a file computes if it is not a product of matrices, or one only where their entries commute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bilinear.errors import fail
from bilinear.interchange.exp import read_commuting
from bilinear.interchange.formats import Format, require_partners
from bilinear.interchange.formulas import read_formulas
from bilinear.interchange.plinopt import read_maps
from bilinear.interchange.reader_parts import Dims, Maps, dims_of, require_one_rank
from bilinear.interchange.structured import prove_structured, read_flat, structure_of
from bilinear.interchange.targets import Identified, identify
from bilinear.ir.bilinear_map import BilinearAlgorithm, product_of_commuting
from bilinear.ir.ring import Ring
from bilinear.verify.bilinear_map import prove_map


def other_map(path: Path, form: Format, ring: Ring | None) -> Identified | None:
    """The map that a file computes, proved; None if it is a product of matrices over any ring, or if the map is unknown.

    Raises `BilinearError`: the readers' errors, E350 and E356 if it does not compute what it must, E352 for changes of basis.
    """
    if form.name in ("sms", "slp"):
        return _of_plinopt(path, form, ring)
    if form.name == "exp":
        found = read_commuting(path)
        return None if found is None else _commuting(found[0], found[1], ring)
    if form.name == "npy":
        return _structured(path, read_flat(path), ring)
    if form.name != "formulas":
        return None
    formulas = read_formulas(path)
    if not formulas.commuting:
        return _structured(path, formulas.maps, ring)
    if formulas.dims is None:
        raise fail("E253", f"{path} has factors that mix a and b, and blocks with one index", "blocks have two: a12")
    return _commuting(formulas.maps, formulas.dims, ring)


def _of_plinopt(path: Path, form: Format, ring: Ring | None) -> Identified | None:
    """Products of polynomials may have the sizes of matrices; their names reveal them: 3o3o3."""
    stem = require_partners(path)
    if stem.endswith("-CoB"):
        raise fail(
            "E352",
            f"{path} changes the bases of another scheme",
            f"import {Path(stem).name.removesuffix('-CoB')}-ALT, which takes it along",
        )
    maps = read_maps(stem, ring, form.name)
    if dims_of(*maps.sizes) is not None and "o" not in path.name.split("_")[0]:
        return None
    return identify(maps)


def _structured(path: Path, maps: Maps, ring: Ring | None) -> Identified | None:
    """What a name of flip-cpd tells; of another name, a known map of these sizes."""
    maps = maps if ring is None else replace(maps, ring=ring)
    structure = structure_of(path)
    if structure is not None:
        return None if structure.general else prove_structured(maps, structure)
    return None if dims_of(*maps.sizes) is not None else identify(maps)


def _commuting(maps: Maps, dims: Dims, ring: Ring | None) -> Identified:
    """The product of matrices whose entries commute, with C as the file numbers it, or transposed."""
    require_one_rank(maps)
    m, k, n = dims
    target = product_of_commuting(m, k, n)
    ways = [maps.w.outputs, tuple(maps.w.outputs[i % n * m + i // n] for i in range(m * n))]
    for outputs in ways:
        algorithm = BilinearAlgorithm(maps.name, target, maps.u, maps.v, replace(maps.w, outputs=outputs), ring or maps.ring)
        proof = prove_map(algorithm)
        if proof.holds:
            return Identified(algorithm, proof)
        if outputs is ways[0]:
            first = proof
    notes = [f"factors mix blocks of A and of B, so it was read for entries that commute: {first.differences[0]}"]
    message = f"{maps.name} does not compute {target.title}: {first.summary}"
    raise fail("E356", message, "compare the file with its source; is it complete?", notes=tuple(notes))
