"""Products of matrices with structure: their tensors against NumPy, and files of flip-cpd's kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilinear.errors import BilinearError
from bilinear.interchange.importing import Imported, import_file
from bilinear.interchange.targets import Identified
from bilinear.ir.bilinear_map import BilinearMap
from bilinear.ir.number import is_negative, rational
from bilinear.ir.structured import KINDS, structured_product

PAIRS = [(left, right) for left in KINDS for right in [*KINDS, "t"]]


def full(kind: str, values: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The matrix of packed values, by NumPy's own indices of triangles."""
    matrix = np.zeros((rows, columns), dtype=np.int64)
    if kind == "g":
        return values.reshape(rows, columns)
    if kind == "l":
        matrix[np.triu_indices(rows)] = values
        return matrix.T
    above = np.triu_indices(rows, 1 if kind == "k" else 0)
    matrix[above] = values
    if kind == "u":
        return matrix
    return matrix + (1 if kind == "s" else -1) * np.triu(matrix, 1).T


def outputs(target: BilinearMap, a: np.ndarray, b: np.ndarray) -> list[int]:
    return [sum(int(rational(c)) * int(a[i]) * int(b[j]) for i, j, c in row) for row in target.rows]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_the_tensor_of_a_product_is_that_of_numpy(left: str, right: str) -> None:
    rng = np.random.default_rng(7)
    target = structured_product(left, right, 3, 3, 3)
    a, b = (rng.integers(-9, 10, size) for size in target.sizes[:2])
    b = a if right == "t" else b
    x = full(left, a, 3, 3)
    product = x @ (x.T if right == "t" else full(right, b, 3, 3))
    expected = product[np.triu_indices(3)] if right == "t" or left + right == "uu" else product.reshape(-1)
    assert outputs(target, a, b) == expected.tolist()


def program(target: BilinearMap) -> tuple[str, list[list[list[int]]]]:
    """The classical algorithm of a map as text, and its U, V and W with a row a product."""
    lines, sums, tables = [], [], [[], [], []]  # type: tuple[list[str], list[str], list[list[list[int]]]]
    for number, row in enumerate(target.rows):
        terms = []
        for i, j, c in row:
            lines.append(f"m{len(lines) + 1} = (a{i + 1})(b{j + 1})")
            terms.append(f"{'-' if is_negative(c) else '+'} m{len(lines)}")
            for table, size, place, value in zip(tables, target.sizes, (i, j, number), (1, 1, int(rational(c))), strict=True):
                table.append([value if at == place else 0 for at in range(size)])
        sums.append(f"c{number + 1} = {' '.join(terms) or '0'}")
    return "\n".join([*lines, "", *sums, ""]), tables


def flat(tables: list[list[list[int]]]) -> np.ndarray:
    numbers = np.array([c for table in tables for row in table for c in row], dtype=np.int64)
    return np.stack([2 * numbers, np.full_like(numbers, 2)], axis=1).reshape(1, -1)


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_files_are_proved_as_what_their_names_tell(tmp_path: Path, left: str, right: str) -> None:
    target = structured_product(left, right, 2, 2, 2)
    text, tables = program(target)
    (tmp_path / f"{left}{right}-222-x.txt").write_text(text)
    np.save(tmp_path / f"{left}{right}-222-x.npy", flat(tables))
    for suffix in ("txt", "npy"):
        found = import_file(tmp_path / f"{left}{right}-222-x.{suffix}")
        assert isinstance(found, Imported) if left + right == "gg" else isinstance(found, Identified)
        if isinstance(found, Identified):
            assert found.title == target.title and found.proof is not None and found.proof.holds


def test_another_map_than_the_name_tells_is_refused(tmp_path: Path) -> None:
    text, tables = program(structured_product("u", "s", 2, 2, 2))
    (tmp_path / "us-222-x.txt").write_text(text.replace("c1 = + m1", "c1 = - m1"))
    np.save(tmp_path / "uw-222-x.npy", flat(tables))
    np.save(tmp_path / "uu-222-x.npy", flat(tables))
    np.save(tmp_path / "no_name.npy", flat(tables))
    np.save(tmp_path / "us-222-y.npy", np.array([[1, 0]]))
    np.save(tmp_path / "us-222-z.npy", np.array([1.5, 1]))
    codes = {"us-222-x.txt": "E350", "uw-222-x.npy": "E350", "uu-222-x.npy": "E253", "no_name.npy": "E653"}
    for name, code in (codes | {"us-222-y.npy": "E353", "us-222-z.npy": "E353", "missing.npy": "E251"}).items():
        with pytest.raises(BilinearError, match=code):
            import_file(tmp_path / name)


def test_outputs_are_left_out_only_where_the_name_says_so(tmp_path: Path) -> None:
    text, _ = program(structured_product("g", "t", 2, 2, 2, frozenset({1, 2})))
    (tmp_path / "gt-222c-x.txt").write_text(text)
    (tmp_path / "gt-222-x.txt").write_text(text)
    found = import_file(tmp_path / "gt-222c-x.txt")
    assert isinstance(found, Identified) and found.title == "A*A^T, A general, 2 x 2 x 2, upper triangle, without C11"
    with pytest.raises(BilinearError, match="E350"):
        import_file(tmp_path / "gt-222-x.txt")
