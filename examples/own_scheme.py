"""A scheme of one's own: write it, prove it, multiply with it, and see what a slip of the pen looks like."""

import tempfile
from pathlib import Path

import numpy as np

import bilinear

# Strassen's scheme with the rows of A and of C exchanged. Sums stand in parentheses or get a name of their own.
MINE = """
scheme mine <2,2,2;7>
  M1 = (A21 + A12) * (B11 + B22)
  M2 = (A11 + A12) * B11
  M3 = A21 * (B12 - B22)
  M4 = A12 * (B21 - B11)
  M5 = (A21 + A22) * B22
  M6 = (A11 - A21) * (B11 + B12)
  M7 = (A22 - A12) * (B21 + B22)
  C11 = M2 + M4           ; C12 = M1 - M2 + M3 + M6
  C21 = M1 + M4 - M5 + M7 ; C22 = M3 + M5
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "mine.bl"
    path.write_text(MINE)
    mine = bilinear.load(path)
    print(mine.verify())  # raises where one of the 64 Brent equations fails

    generator = np.random.default_rng(1)
    a, b = generator.integers(-9, 10, (100, 100)), generator.integers(-9, 10, (100, 100))
    c = mine.matmul(a, b, levels=2)
    print(f"\ntwo levels, integers exact: {np.array_equal(c, a @ b)}")

    print("\nwith one sign wrong:")
    path.write_text(MINE.replace("M4 - M5", "M4 + M5"))
    try:
        bilinear.load(path).verify()
    except bilinear.BilinearError as wrong:
        print(str(wrong).replace(folder + "/", ""))
