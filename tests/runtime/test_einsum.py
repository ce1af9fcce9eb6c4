"""`einsum` and `tensordot`: exact on integers beside NumPy's sum of products, by as few copies as the letters allow, or refused."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from each_case import each
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runtime.pretended_gpu import Array, Gpu
from runtime.test_torch_tensors import STREAM, Tensor, Torch

import bilinear
from bilinear.errors import BilinearError
from bilinear.runtime import einsum as own
from bilinear.runtime.arrays import _pool

Case = tuple[str, list[tuple[int, ...]]]
EXTENTS = {"a": 2, "b": 3, "c": 4, "d": 1, "e": 0, "f": 2}
SPREAD = (3, 2)  # The extents that an ellipsis stands for.


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Subscripts of one to four operands, with repeated letters, ellipses and extents of 1 that fit others, and the shapes."""
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 4))):
        letters = draw(st.lists(st.sampled_from("aabbccdef"), max_size=3))
        ones = draw(st.sets(st.sampled_from("abc"), max_size=1))
        shape = tuple(1 if letter in ones else EXTENTS[letter] for letter in letters)
        spread = draw(st.sampled_from([None, None, None, 0, 1, 2]))
        at = draw(st.integers(0, len(letters)))
        terms.append("".join(letters) if spread is None else "".join([*letters[:at], "...", *letters[at:]]))
        shapes.append(shape[:at] + SPREAD[2 - (spread or 0) :] + shape[at:])
    given_letters = sorted(set("".join(terms)) - {"."})
    if not draw(st.integers(0, 3)):
        return ",".join(terms), shapes
    kept = draw(st.lists(st.sampled_from(given_letters), unique=True)) if given_letters else []
    at = draw(st.integers(0, len(kept)))
    return f"{','.join(terms)}->{''.join([*kept[:at], '...', *kept[at:]])}", shapes


def operands(shapes: list[tuple[int, ...]], dtype: Any, seed: int = 1) -> list[Any]:
    generator = np.random.default_rng(seed)
    return [generator.integers(-3, 4, shape).astype(dtype) for shape in shapes]


@settings(max_examples=4 * settings().max_examples)
@given(cases(), st.sampled_from([np.int64, np.int8, np.uint8, np.float64, np.complex128, object, bool]))
@example(("ij,jk", [(2, 3), (3, 4)]), np.int64)
@example((",ij,", [(), (2, 3), ()]), np.int64)
@example(("...a,...b,...c->...", [(3, 2, 2), (2, 3), (4,)]), np.int64)
def test_the_sum_is_numpys(case: Case, dtype: Any) -> None:
    subscripts, shapes = case
    arrays = operands(shapes, dtype)
    expected = np.einsum(subscripts, *arrays, optimize=False)
    found = bilinear.einsum(subscripts, *arrays)
    assert np.shape(found) == np.shape(expected) and np.array_equal(found, expected)
    assert dtype is object or (type(found) is type(expected) and found.dtype == expected.dtype)
    out = np.full(np.shape(expected), 77).astype(dtype)
    assert bilinear.einsum(subscripts, *arrays, out=out) is out
    assert np.array_equal(out, expected)


def test_types_are_those_common_to_all() -> None:
    """100 * 100 is not an int8, and 2 * 100 is none either: nothing may be summed or multiplied in the narrower type."""
    low, high = np.full((2, 3), 100, np.int8), np.full((3, 2), 100, np.int64)
    for subscripts, arrays in (("ij,jk->ik", (low, high)), ("ij,ab->a", (low, high)), ("ij,ij,ki->jk", (low, low, high))):
        expected = np.einsum(subscripts, *arrays)
        found = bilinear.einsum(subscripts, *arrays)
        assert found.dtype == expected.dtype and (found == expected).all()
    assert bilinear.einsum("ij,jk", low, low.T).dtype == np.int8


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_lists_numbers_and_matrices_are_arrays() -> None:
    assert bilinear.einsum("ij,jk->ik", [[1, 2]], [[3], [4]]).tolist() == [[11]]
    assert bilinear.einsum(",i->i", 3, [1, 2]).tolist() == [3, 6]
    turned = bilinear.einsum("ij,jk->ki", np.asmatrix([[1, 2]]), np.ones((2, 3), int))
    assert type(turned) is np.ndarray and turned.tolist() == [[3]] * 3
    assert bilinear.tensordot([[1, 2]], [3, 4], 1).tolist() == [11]


def test_what_is_new_or_a_view_may_be_written() -> None:
    (a,) = operands([(3, 3)], np.int64)
    assert np.shares_memory(bilinear.einsum("ij->ji", a), a)
    a.flags.writeable = False
    for subscripts in ("ij->ji", "ii->i", "ij->i"):
        assert bilinear.einsum(subscripts, a).flags.writeable


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, Any, dict[str, Any]]]:
    """The calls of `matmul`."""
    seen: list[tuple[Any, Any, Any, dict[str, Any]]] = []

    def spied(a: Any, b: Any, out: Any = None, **options: Any) -> Any:
        seen.append((a, b, out, options))
        return bilinear.matmul(a, b, out, **options)

    monkeypatch.setattr(own, "matmul", spied)
    return seen


@pytest.mark.parametrize(
    ("subscripts", "left", "right", "shapes"),
    [
        ("ij,jk->ik", (2, 3), (3, 4), ((2, 3), (3, 4))),
        ("ji,kj->ki", (3, 2), (4, 3), ((2, 3), (3, 4))),
        ("bij,bjk->bik", (5, 2, 3), (5, 3, 4), ((5, 2, 3), (5, 3, 4))),
        ("ijb,kb->ijk", (5, 2, 3), (4, 3), ((10, 3), (3, 4))),
        ("abij,ijc->abc", (2, 3, 4, 5), (4, 5, 6), ((6, 20), (20, 6))),
        ("...ij,jk->...ik", (5, 2, 3), (3, 4), ((10, 3), (3, 4))),
        ("i,i->", (5,), (5,), ((1, 5), (5, 1))),
    ],
)
def test_two_operands_are_one_product_of_views(products: Any, subscripts: str, left: Any, right: Any, shapes: Any) -> None:
    x, y = operands([left, right], np.int64)
    bilinear.einsum(subscripts, x, y)
    ((a, b, out, _),) = products
    assert (a.shape, b.shape) == shapes and out is None
    assert np.shares_memory(a, x) and np.shares_memory(b, y)


@pytest.mark.parametrize(("one", "other"), [((4, 5, 3), (5, 4, 6)), ((4, 5, 2), (5, 4, 6))])
def test_of_two_operands_whose_letters_lie_in_another_order_the_smaller_one_is_copied(products: Any, one: Any, other: Any) -> None:
    x, y = operands([one, other], np.int64)
    assert (bilinear.einsum("ija,jib->ab", x, y) == np.einsum("ija,jib->ab", x, y)).all()
    ((a, b, _, _),) = products
    assert not np.shares_memory(a, x) and np.shares_memory(b, y)


def test_the_product_is_written_where_out_lies(products: Any) -> None:
    x, y = operands([(2, 3), (3, 4)], np.int64)
    out = np.zeros((4, 2), int)
    assert bilinear.einsum("ij,jk->ki", x, y, out=out) is out
    assert np.shares_memory(products[0][2], out) and (out == (x @ y).T).all()


@each("subscripts", ["ij->ji", "ij,jk->ik", "ij,jk->ki", "ij,ij->ji", "ij,jk,kl->li", "ii,j->ij"])
@each("at", [0, -1])
def test_an_out_that_overlaps_an_operand_gets_the_sum(subscripts: str, at: int) -> None:
    arrays = operands([(3,) * len(term) for term in subscripts.partition("->")[0].split(",")], np.int64)
    expected, out = np.einsum(subscripts, *arrays).copy(), arrays[at]
    if out.ndim == 2:
        assert bilinear.einsum(subscripts, *arrays, out=out) is out
        assert (out == expected).all()


def test_the_options_are_those_of_every_product(products: Any) -> None:
    a, b, c = operands([(8, 16), (16, 8), (8, 4)], np.float64)
    copy = a.copy()
    options: Any = {"algorithm": "msmes", "levels": 1, "inputs": "restore", "workspace": "none"}
    found = bilinear.einsum("ij,jk,kl->li", a, b, c, **options)
    assert (found == (a @ b @ c).T).all() and (a == copy).all()
    assert [given for *_, given in products] == [options] * 2
    assert (bilinear.tensordot(a, b, 1, algorithm="strassen", levels=1) == a @ b).all()
    assert products[-1][3] == {"algorithm": "strassen", "levels": 1}
    with pytest.raises(BilinearError, match="E535"):
        bilinear.einsum("ij,jk", a, b, algorithm="strassen", levels=1, workspace=8)
    with pytest.raises(TypeError, match="optimize"):
        bilinear.einsum("ij,jk", a, b, optimize=True)  # type: ignore[call-overload]


@each("axes", [0, 1, 2, 3, (1, 0), ([1, 2], [0, 1]), ([0, -1], [-1, 1]), ((), ()), (np.array([0]), [2]), np.int64(2)])
def test_tensordot_is_numpys(axes: Any) -> None:
    a, b = operands([(3, 3, 3), (3, 3, 3)], np.int64)
    found, expected = bilinear.tensordot(a, b, axes), np.tensordot(a, b, axes)
    assert found.shape == expected.shape and (found == expected).all()


ONES = np.ones((2, 2), int)
WRONG: list[tuple[Any, list[Any], str, str]] = [
    (ONES, [[0, 1], ONES, [1, 52]], "E730", r"\[1, 52\] stands where the numbers of an operand's dimensions should"),
    (ONES, [[0, 1], ONES, [1, -1]], "E730", r"\[1, -1\] stands where"),
    (ONES, [[0, 1], ONES, "jk"], "E730", "'jk' stands where"),
    (ONES, [[0, 1], ONES, [1, 2], [3]], "E730", "no operand has D, which the result has"),
    (ONES, [[0, 1, 2]], "E731", r"'ABC' is for 3 dimension\(s\), and the operand has 2"),
    ("ij,jk-ik", [ONES, ONES], "E730", "'-' stands where a letter or an ellipsis should"),
    ("ij,jk->ik->", [ONES, ONES], "E730", "'-' stands where"),
    ("i..j", [ONES], "E730", "'.' stands where"),
    ("i...j...", [ONES], "E730", "'.' stands where"),
    ("ä", [ONES[0]], "E730", "'ä' stands where"),
    ("ij->ik", [ONES], "E730", "no operand has k, which the result has"),
    ("ij->ii", [ONES], "E730", "the result has i twice"),
    ("...j->j", [ONES], "E730", "the result has no ellipsis"),
    ("ij,jk", [ONES], "E731", r"names 2 operand\(s\), and 1 are given"),
    ("", [], "E731", r"names 1 operand\(s\), and 0 are given"),
    ("ijk", [ONES], "E731", r"'ijk' is for 3 dimension\(s\), and the operand has 2"),
    ("i", [ONES], "E731", r"'i' is for 1 dimension\(s\), and the operand has 2"),
    ("ijk...", [ONES], "E731", r"for at least 3 dimension\(s\)"),
    ("ij,jk", [ONES, np.ones((3, 2))], "E731", "the extents 2 and 3 of j differ"),
    ("ii", [np.ones((1, 3))], "E731", "the extents 1 and 3 of i differ"),
    ("...,...", [ONES, np.ones((3, 2))], "E731", r"stands for \(dimension 2 from the right\)"),
]


@each(("subscripts", "arrays", "code", "told"), WRONG)
def test_what_has_no_meaning_is_refused(subscripts: Any, arrays: list[Any], code: str, told: str) -> None:
    with pytest.raises(BilinearError, match=f"error.{code}.: .*{told}"):
        bilinear.einsum(subscripts, *arrays)
    with pytest.raises((ValueError, IndexError, TypeError)):
        np.einsum(subscripts, *arrays)


INTERLEAVED: list[tuple[Any, ...]] = [
    ([0, 1], [1, 2], [0, 2]),
    ([0, 1], [1, 2]),
    ([30, 1], [1, 2]),  # an unnamed result is in the order of the numbers
    ([..., 0, 1], [1, 2], [..., 2, 0]),
    ([0, 1], [0, 1], []),
    ((0, 0), (0, 1)),
]


@each("labels", INTERLEAVED)
def test_numbers_stand_for_letters(labels: tuple[Any, ...]) -> None:
    a, b, *rest = labels
    x, y = operands([(3, 3), (3, 3)], np.int64)
    found, wanted = bilinear.einsum(x, a, y, b, *rest), np.einsum(x, a, y, b, *rest)
    np.testing.assert_array_equal(found, wanted)


CASTS: list[tuple[str, Any, str, str | None]] = [
    ("f8", "f4", "same_kind", None),
    ("i8", "f4", "same_kind", None),
    ("f4", "f8", "safe", "f8"),
    ("f8", None, "no", "f4"),
    ("f8", "i8", "same_kind", None),
    ("f8", "i8", "unsafe", "i4"),
    ("f8", None, "unsafe", "i8"),
    (">f8", None, "no", None),
    (">f8", None, "equiv", None),
    ("i4", "?", "same_kind", None),
    ("i8", "i4", "safe", None),
    ("i4", object, "safe", None),
]


@each(("given_type", "dtype", "casting", "out"), CASTS)
@each("subscripts", [None, "ij,jk->ik"])
def test_types_and_casts_are_numpys(subscripts: str | None, given_type: str, dtype: Any, casting: Any, out: str | None) -> None:
    """`matmul` and `einsum` beside NumPy's: the type of the result, its numbers, and what is refused."""
    a, b = (x.astype(given_type) for x in operands([(5, 6), (6, 4)], np.int64))
    results = []
    for ours in (True, False):
        target = None if out is None else np.zeros((5, 4), out)
        module: Any = bilinear if ours else np
        call = module.matmul if subscripts is None else module.einsum
        try:
            found = call(*([] if subscripts is None else [subscripts]), a, b, out=target, dtype=dtype, casting=casting)
        except TypeError as error:
            results.append((None, str(error)[:11] if ours else "error[E530]", True))
        else:
            results.append((found.dtype, found.tolist(), target is None or found is target))
    assert results[0] == results[1]


def test_a_cast_result_is_added_in_the_type_of_the_product() -> None:
    a, out = np.full((2, 2), 1.5), np.ones((2, 2), int)
    assert bilinear.matmul(a, a, out, beta=2, casting="unsafe", algorithm="strassen", levels=1) is out
    np.testing.assert_array_equal(out, 6)  # 4.5 + 2, rounded once


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"dtype": "float33"}, "E540"),
        ({"casting": "some"}, "E540"),
        ({"dtype": "f4", "modulus": 7}, "E598"),
        ({"casting": "safe", "modulus": 7}, "E598"),
    ],
)
def test_types_and_casts_without_a_meaning_are_refused(options: Any, code: str) -> None:
    with pytest.raises(BilinearError, match=code):
        bilinear.matmul(ONES, ONES, **options)


@each("axes", [-1, 3, 1.5, (0,), (0, 1, 2), ([0, 0], [0, 1]), ([0], [0, 1]), (0, 5), "ab", None, (1, 0)])
def test_axes_that_do_not_fit_are_refused(axes: Any) -> None:
    with pytest.raises(BilinearError, match=r"E731.*cannot be summed over axes="):
        bilinear.tensordot(ONES, np.ones((3, 2)), axes)


def test_letters_run_out_only_where_a_path_is_searched() -> None:
    wide = np.ones((1,) * 30)
    assert bilinear.einsum("...,...", wide, wide).shape == wide.shape
    many = [np.ones((1,) * 20), *(np.ones((2,) * 2) for _ in range(2))]
    assert bilinear.einsum("...,ab,cd", *many).ndim == 24
    with pytest.raises(BilinearError, match=r"E730.*54 dimensions are more than the 52 letters"):
        bilinear.einsum(
            f"...,...,{','.join('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ')}", *[np.ones((2, 2))] * 2, *[np.ones(2)] * 52
        )


@pytest.mark.parametrize("subscripts", ["ij->ji", "ij,ij->ij", "ij,kl->ijkl", "ij,kl->", "ii"])
def test_a_named_algorithm_without_a_matrix_product_is_refused(subscripts: str) -> None:
    arrays = [ONES] * (subscripts.count(",") + 1)
    with pytest.raises(BilinearError, match=r"E732.*nothing here is a matrix product"):
        bilinear.einsum(subscripts, *arrays, algorithm="strassen")
    assert np.array_equal(bilinear.einsum(subscripts, *arrays), np.einsum(subscripts, *arrays))


def test_nothing_is_consumed_that_a_later_product_reads() -> None:
    a, b = operands([(8, 8), (8, 8)], np.float64)
    with pytest.raises(BilinearError, match=r"E523.*operands 1 and 3 apart"):
        bilinear.einsum("ij,jk,kl->il", a, b, a, algorithm="msmes", levels=1, inputs="consume")


@pytest.mark.parametrize("subscripts", ["bij,bjk->bki", "ii,ij->j", "ij,jk,kl->li", "ijk,lk->li", "ij->ji", "ij,jk->", "i,j->ij"])
def test_arrays_on_a_gpu_stay_there(gpu: Gpu, subscripts: str) -> None:
    arrays = operands([(3,) * len(term) for term in subscripts.partition("->")[0].split(",")], np.float64)
    found, expected = bilinear.einsum(subscripts, *map(Array, arrays)), np.einsum(subscripts, *arrays)
    assert isinstance(found, Array) and (found.host == expected).all()
    assert gpu.library == (0 if subscripts == "i,j->ij" else subscripts.count(","))
    out = Array(np.full(expected.shape, np.nan))
    assert bilinear.einsum(subscripts, *map(Array, arrays), out=out) is out and (out.host == expected).all()


def test_what_overlaps_is_copied_before_it_is_written(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's assignment, unlike NumPy's, reads what it has written already."""
    (a,) = operands([(3, 3)], np.float64)

    def assign(self: Array, index: Any, value: Array) -> None:
        assert not np.shares_memory(self.host, value.host)
        self.host[index] = value.host

    monkeypatch.setattr(Array, "__setitem__", assign)
    monkeypatch.setattr(Array, "copy", lambda self: Array(self.host.copy()), raising=False)
    expected, x = a.T.copy(), Array(a)
    assert bilinear.einsum("ij->ji", x, out=x) is x and (x.host == expected).all()


def test_what_may_be_copied_cannot_stand_in_a_graph(gpu: Gpu) -> None:
    a, b, out = (Array(np.ones((3, 3))) for _ in range(3))
    with gpu.using(is_capturing=True), pytest.raises(BilinearError, match=r"E536.*operands may have to be copied"):
        bilinear.einsum("ij,jk->ik", a, b, out=out)


def test_tensors_of_pytorch_on_processors_are_given_back() -> None:
    torch = pytest.importorskip("torch")
    a, b = operands([(3, 4), (4, 5)], np.float32)
    for subscripts, arrays in (("ij,jk->ki", (a, b)), ("i,i->", (a[0], b[:, 0])), ("ij->ji", (a,)), ("ii->i", (a[:, :3],))):
        found = bilinear.einsum(subscripts, *map(torch.from_numpy, arrays))
        assert isinstance(found, torch.Tensor) and np.array_equal(found.numpy(), np.einsum(subscripts, *arrays))


class Shaped(Tensor):
    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)


def test_tensors_of_pytorch_on_a_gpu_are_given_back(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    _pool.cache_clear()
    a, b = operands([(8, 8), (8, 8)], np.float64)
    found = bilinear.einsum("ij,jk->ik", *(Shaped(Array(x)) for x in (a, b)))
    assert isinstance(found, Tensor) and (found.array.host == a @ b).all()
    assert {stream for *_, stream in torch.allocated} == {STREAM}
    out = Shaped(Array(np.zeros((8, 8))))
    assert bilinear.einsum("ij,jk->ki", *(Shaped(Array(x)) for x in (a, b)), out=out) is out and (out.array.host == (a @ b).T).all()
    _pool.cache_clear()
