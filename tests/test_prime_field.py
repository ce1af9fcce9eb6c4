"""The prime field that emitted text is compiled over, beside Python's integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from bilinear.emulator import CompileError, compile_on_cpu, field, skip_reason

pytestmark = pytest.mark.skipif(skip_reason() is not None, reason=skip_reason() or "")

P = field.PRIME
EDGES = [0, 1, 2, 3, P - 1, P - 2, P // 2, P // 2 + 1, 2**32, 2**60, 2**60 + 1]
FLAGS = (f"-DREAL={field.ELEMENT}",)
OPERATIONS = """\
typedef REAL Real;
extern "C" __global__ void k(Real* x, Real* y, Real* z, int n)
{
    for (int i = 0; i < n; ++i) {
        Real* const to = z + 8 * i;
        to[0] = x[i] + y[i], to[1] = x[i] - y[i], to[2] = x[i] * y[i], to[3] = -x[i], to[4] = x[i] / Real(7), to[5] = fma(x[i], y[i], x[i]);
        to[6] = Real(x[i] == y[i]), to[7] = x[i], to[7] += y[i], to[7] *= y[i], to[7] -= x[i], to[7] /= Real(-3);
    }
}
"""


def computed(xs: list[int], ys: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.uint64]]:
    module = compile_on_cpu(OPERATIONS, {"k": [f"{field.ELEMENT} *"] * 3 + ["int"]}, flags=FLAGS, include=(field.HEADER,))
    x, y = (np.array(values, np.uint64) for values in (xs, ys))
    z = np.full((len(xs), 8), field.UNDEFINED, np.uint64)
    module.launch("k", 1, 1, [x, y, z, len(xs)])
    return z


def test_arithmetic_is_that_of_the_integers_modulo_p() -> None:
    generator = random.Random(1)
    pairs = [(x, y) for x in EDGES for y in EDGES] + [(generator.randrange(P), generator.randrange(P)) for _ in range(300)]
    z = computed([x for x, _ in pairs], [y for _, y in pairs])
    for (x, y), row in zip(pairs, z.tolist(), strict=True):
        quotient = (x + y) * y - x
        wanted = [x + y, x - y, x * y, -x, x * pow(7, -1, P), x * y + x, int(x == y), quotient * pow(-3, -1, P)]
        assert row == [value % P for value in wanted]


def test_degrees_add_up_and_what_is_undefined_spreads() -> None:
    def word(value: int, degree: int) -> int:
        return degree << 61 | value

    z = computed([word(5, 2), word(5, 4), field.UNDEFINED, word(0, 1)], [word(6, 1), word(6, 3), word(0, 0), word(5, 0)])
    assert field.degrees(z)[:, :6].tolist() == [[2, 2, 3, 2, 2, 3], [4, 4, 7, 4, 4, 7], [7, 7, 7, 7, 7, 7], [1, 1, 1, 1, 1, 1]]
    assert field.values(z)[0, :3].tolist() == [11, P - 1, 30]
    assert z[2, 6] == 0  # equal to nothing


def test_constants_of_the_text() -> None:
    source = """typedef REAL Real; extern "C" __global__ void k(Real* z)
    { z[0] = Real(-1); z[1] = Real(1) / Real(3); z[2] = Real(2305843009213693951); z[3] = Real(1) / Real(2305843009213693951); }"""
    module = compile_on_cpu(source, {"k": [f"{field.ELEMENT} *"]}, flags=FLAGS, include=(field.HEADER,))
    z = np.zeros(4, np.uint64)
    module.launch("k", 1, 1, [z])
    assert z.tolist() == [P - 1, pow(3, -1, P), 0, field.UNDEFINED]


@pytest.mark.parametrize("body", ["z[0] = Real(0.5);", "z[0] = z[0] * 2;", "double x = double(z[0]);", "if (z[0] < z[1]) z[0] = z[1];"])
def test_what_a_field_has_not_is_refused(body: str) -> None:
    source = f'typedef REAL Real; extern "C" __global__ void k(Real* z) {{ {body} }}'
    with pytest.raises(CompileError):
        compile_on_cpu(source, {"k": [f"{field.ELEMENT} *"]}, flags=FLAGS, include=(field.HEADER,))


def test_matrices_are_multiplied_as_integers_are() -> None:
    generator = np.random.default_rng(1)
    x, y = (field.values(field.random_words(generator, shape)) for shape in ((5, 2 * field.MOST_INNER + 3), (2 * field.MOST_INNER + 3, 4)))
    x[0], y[:, 0] = P - 1, P - 1  # the longest sums of the largest limbs
    wanted = (x.astype(object) @ y.astype(object)) % P
    assert field.matmul(x, y).tolist() == wanted.tolist()
    assert field.multiply(x, x[0, 0]).tolist() == (x.astype(object) * (P - 1) % P).tolist()
    assert field.matmul(x[:, :0], y[:0]).tolist() == np.zeros((5, 4)).tolist()
