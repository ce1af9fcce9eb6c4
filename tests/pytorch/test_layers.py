"""`Linear` beside PyTorch's: the same parameters, the same values, and products by its algorithm."""

from __future__ import annotations

import copy
import io

import pytest
from described import check_examples, check_parameters
from pytorch.conftest import Runs
from pytorch.needed import integers, torch

import bilinear.torch


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_pytorchs_with_other_products(bias: bool, runs: Runs) -> None:
    torch.manual_seed(1)
    own = torch.nn.Linear(6, 4, bias, dtype=torch.float64)
    torch.manual_seed(1)
    layer = bilinear.torch.Linear(6, 4, bias, dtype=torch.float64, algorithm="strassen", levels=1)
    for shape in ((8, 6), (2, 3, 6), (6,), (0, 6)):
        x = integers(*shape)
        torch.testing.assert_close(layer(x), own(x), rtol=1e-13, atol=1e-13)
    assert {name for name, *_ in runs} == {"strassen"}
    assert own.state_dict().keys() == layer.state_dict().keys()
    layer.load_state_dict(own.state_dict())


def test_a_layer_is_exact_on_integers() -> None:
    layer = bilinear.torch.Linear(6, 4, dtype=torch.float64, algorithm="winograd", levels=1)
    with torch.no_grad():
        layer.weight.copy_(integers(4, 6))
        layer.bias.copy_(integers(4))
    assert torch.equal(layer(integers(8, 6)), integers(8, 6) @ integers(4, 6).T + integers(4))


def test_a_layer_is_shown_copied_and_saved() -> None:
    layer = bilinear.torch.Linear(6, 4, algorithm="strassen", levels=2)
    assert str(layer) == "Linear(in_features=6, out_features=4, bias=True, algorithm='strassen', levels=2)"
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert str(other) == str(layer) and torch.equal(other.weight, layer.weight)


def test_a_layer_that_is_compiled_or_cast(runs: Runs) -> None:
    layer = bilinear.torch.Linear(6, 4, algorithm="strassen", levels=1)
    x = integers(8, 6, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    assert len(runs) == 1
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.warns(UserWarning, match="no schedule runs on bfloat16"):
        assert layer(x).dtype == torch.bfloat16


def test_the_public_names_are_listed_and_nothing_else() -> None:
    assert dir(bilinear.torch) == ["Linear", "linear", "matmul", "using"]


@pytest.mark.parametrize("name", bilinear.torch.__all__)
def test_the_docstrings_describe_all_and_their_examples_run(name: str) -> None:
    check_parameters(getattr(bilinear.torch, name))
    check_examples(getattr(bilinear.torch, name))
