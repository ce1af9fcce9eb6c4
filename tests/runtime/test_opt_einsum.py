"""`backend="bilinear"` of opt_einsum: contractions by products of this package, exact beside NumPy's sum of products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from each_case import each

import bilinear
from bilinear.runtime import einsum as own

oe = pytest.importorskip("opt_einsum", reason="opt_einsum is not installed (pip install --group test)")

CONTRACTIONS = [
    "ij,jk,kl->il",
    "ij,jk,kl->li",
    "bij,bjk,bkl->bil",
    "ij,ij,jk->ik",
    "aab,bc->ac",
    "ab,cd->ac",
    "i,i->",
    "ij,ij,ij->",
    "abc,cd,de,ef->fab",
    "ij,kl->klij",
    "...a,ab->...b",
]


def operands(contraction: str, seed: int = 1) -> list[Any]:
    generator = np.random.default_rng(seed)
    terms = contraction.partition("->")[0].replace("...", "XY").split(",")
    return [generator.integers(-3, 4, (3,) * len(term)) for term in terms]


@each("optimize", ["auto", "greedy", False])
@each("contraction", CONTRACTIONS)
def test_a_contraction_is_exact(contraction: str, optimize: Any) -> None:
    arrays = operands(contraction)
    found = oe.contract(contraction, *arrays, backend="bilinear", optimize=optimize)
    assert np.array_equal(found, np.einsum(contraction, *arrays, optimize=False))


def test_the_products_are_those_of_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spied(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
        seen.append((a.shape, b.shape))
        return bilinear.matmul(a, b, out, **options)

    monkeypatch.setattr(own, "matmul", spied)
    oe.contract("ij,jk,bkl->bil", *operands("ij,jk,bkl->bil"), backend="bilinear")
    assert len(seen) == 2


def test_expressions_with_constants_and_an_out() -> None:
    a, b, c = operands("ij,jk,kl->li")
    expression = oe.contract_expression("ij,jk,kl->li", a, b.shape, c.shape, constants=[0])
    out = np.zeros((3, 3), int)
    assert expression(b, c, out=out, backend="bilinear") is out
    assert (out == (a @ b @ c).T).all()


def test_numpys_path_and_that_of_opt_einsum_give_the_same() -> None:
    contraction = "abc,cd,de,ef,bf->a"
    arrays = operands(contraction)
    assert np.array_equal(bilinear.einsum(contraction, *arrays), oe.contract(contraction, *arrays, backend="numpy"))


def test_tensors_of_pytorch_are_contracted() -> None:
    torch = pytest.importorskip("torch")
    arrays = operands("ij,jk,kl->li")
    found = oe.contract("ij,jk,kl->li", *map(torch.tensor, arrays), backend="bilinear")
    assert isinstance(found, torch.Tensor) and np.array_equal(found.numpy(), np.einsum("ij,jk,kl->li", *arrays))


def test_what_opt_einsum_asks_for_is_there_and_only_its_tensordot_and_einsum_are_public() -> None:
    assert {"einsum", "tensordot"} <= set(dir(bilinear)) and "transpose" not in dir(bilinear)
    assert bilinear.transpose(np.zeros((1, 2, 3)), (2, 0, 1)).shape == (3, 1, 2)  # type: ignore[operator]
