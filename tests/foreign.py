"""Strassen's scheme and a commutative one in the formats of others, written for the tests."""

from __future__ import annotations

import json
from collections.abc import Sequence

U = [[1, 0, 0, 1], [0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 0, 1], [1, 1, 0, 0], [-1, 0, 1, 0], [0, 1, 0, -1]]
V = [[1, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, -1], [-1, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]]
W = [[1, 0, 0, 1], [0, 0, 1, -1], [0, 1, 0, 1], [1, 0, 1, 0], [-1, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
"""A row a product; C row by row."""
W_COLUMNS = [[row[0], row[2], row[1], row[3]] for row in W]

U_COLUMNS, V_COLUMNS = ([[row[0], row[2], row[1], row[3]] for row in table] for table in (U, V))
PRODUCTS = tuple(zip(U, V, W_COLUMNS, strict=True))

FAST_MATMUL = """\
1 0 1 0 1 -1 0
0 0 0 0 1 0 1
0 1 0 0 0 1 0
1 1 0 1 0 0 -1
#
1 1 0 -1 0 1 0
0 0 1 0 0 1 0
0 0 0 1 0 0 1
1 0 -1 0 1 0 1
#
1 0 0 1 -1 0 1
0 0 1 0 1 0 0
0 1 0 1 0 0 0
1 -1 1 0 0 1 0
"""

Table = Sequence[Sequence[int]]


def columns(table: Table) -> list[list[int]]:
    return [list(column) for column in zip(*table, strict=True)]


def sparse(table: Table) -> list[list[list[int]]]:
    return [[[i, c] for i, c in enumerate(row) if c] for row in table]


def commas(table: Table, sign: str = ", ") -> str:
    return "".join(f"{sign.join(map(str, row))}\n" for row in table)


def square(row: Sequence[int]) -> str:
    return f"[[{row[0]},{row[1]}],[{row[2]},{row[3]}]]"


def summed(letter: str, row: Sequence[int]) -> str:
    return "(" + " + ".join(f"{c}*{letter}{i // 2 + 1}{i % 2 + 1}" for i, c in enumerate(row) if c) + ")"


def matlab(name: str, table: Table) -> str:
    return f"{name} = [{'; '.join(' '.join(map(str, row)) for row in table)}];\n"


def triads() -> str:
    three = (", ".join(f"Matrix(2, 2, {square(row)})" for row in rows) for rows in zip(U, V, W_COLUMNS, strict=True))
    return ", ".join(f"Triad([{matrices}])" for matrices in three)


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]}, indent=1)


def arrays(name: str) -> str:
    u, v, w = ([[float(c) for c in row] for row in columns(table)] for table in (U, V, W_COLUMNS))
    return f"{name} = (np.array({u}, dtype=np.float32), np.array({v}),\n  np.array({w}))\n"


YACAS = """\
# a script
P1 := (a11 + a22)*(b11 + b22);
P2 := (a21 + a22)*b11;
P3 := a11*(b12 - b22);
P4 := a22*( - b11 + b21);
P5 := (a11 + a12) * b22;
P6 := ( - a11 + a21)(b11 + b12);
P7 := (a12 - a22)(b21 + b22);

c11 := P1 + P4 - P5
       + P7;
c12 := P3 + P5;
c21 := P2 + P4;
c22 := P1 - P2 + P3 + P6;

Simplify(c11 - (a11*b11 + a12*b21));
"""
NAMED_SUMS = """\
s1 = A21 + A22
s2 = s1 - A11
t1 = B12 - B11
t2 = B22 - t1
p1 = s2*t2
p2 = A11*B11
p3 = A12*B21
p4 = (A11 - A21)*(B22 - B12)
p5 = s1*t1
p6 = (A12 - s2)*B22
p7 = A22*(t2 - B21)  % one more
u2 = p2 + p1
u3 = u2 + p4
C11 = p2 + p3
C12 = u2 + p5 + p6
C21 = u3 - p7
C22 = u3 + p5
"""
LATEX = r"""
\begin{align*}
M_1 &= \left(A_{11} + A_{22}\right)\left(B_{11} + B_{22}\right), & M_{2} &= (A_{21} + A_{22})\,B_{1,1} \\
M_3 &= A_{11} \cdot (B_{12} - B_{22}), \quad M_4 = \frac{2}{2} A_{22} \times (B_{21} - B_{11}), \\
M_5 &= (A_{11} + A_{12}) B_{22} \\ M_6 &= (A_{21} - A_{11}) (B_{11} + B_{12}) \\ M_7 &= (A_{12} - A_{22})(B_{21} + B_{22}) \\
C_{11} &= M_1 + M_4
       - M_5 + M_7, & C_{12} &= M_3 + M_5, \\
C_{21} &= M_{2} + M_4, & C_{22} &= M_1 - M_{2} + M_3 + M_6.
\end{align*}
"""
PRINTED = """\
m1 = (a11 + a22)(b11 + b22), m2 = (a_21 + a_22)b_11, m3 = a11(b12 \u2013 b22),
m4 = a22 \u00b7 (b21 \u2212 b11), m5 = (a1_1 + a1_2)\u22c5b22; m6 = (a[2,1] \u2212 a11)\u00a0\u00d7 (b11 + b12)
m7 = (a12 \u2212 a22) (b21 + b22)
c11 = m1 + m4 \u2212 m5 + m7; c12 = m3 + m5; c21 = m2 + m4
c22 = m1 \u2212 m2 + m3 + m6.
"""
FILES = {
    "latex.tex": LATEX,
    "printed.txt": PRINTED,
    "headed.bl": f"# as printed\nscheme strassen <2,2,2;7>\n{PRINTED}",
    "arrays.json": json.dumps({"U": U, "V": columns(V), "W": W}),
    "letters.py": f"import numpy as np\nU = np.array({U})\nV = {V}\nW = np.array({W})\nprint(U)\n",
    "tuple.py": f"strassen = ({columns(U)}, {columns(V)}, {columns(W_COLUMNS)})\n",
    "turned.m": matlab("U", U) + matlab("V", V) + matlab("W", columns(W)).replace("];", "]';"),
    "mixed.m": matlab("U", U) + matlab("V", V) + matlab("W", columns(W)),
    "factors.m": "% a decomposition\n" + matlab("A", columns(U)) + matlab("B", columns(V)) + matlab("C", columns(W)),
    "factors.txt": matlab("A", columns(U_COLUMNS)) + matlab("B", columns(V_COLUMNS)) + matlab("C", columns(W)),
    "commas.txt": "\n".join(commas(table) for table in (U, columns(V), W)),
    "titles.csv": f"A:\n{commas(columns(U), ',')}B:\n{commas(columns(V), ' ; ')}C:\n{commas(columns(W), ',')}",
    "products.py": f"strassen = {[tuple(map(tuple, three)) for three in PRODUCTS]}\n",
    "matrices.py": f"strassen = [{', '.join(f'({square(u)}, {square(v)}, {square(w)})' for u, v, w in PRODUCTS)}]\n",
    "rows.txt": "2 2 2 7\n" + "".join(" ".join(map(str, row)) + "\n" for table in (U, V, W_COLUMNS) for row in table),
    "table": FAST_MATMUL,
    "complex.txt": f"((0.5+0.5j)*{summed('a', U[0])})*((1-1j)*{summed('b', V[0])})*{summed('c', W_COLUMNS[0])}\n"
    + "".join(f"{summed('a', U[p])}*{summed('b', V[p])}*{summed('c', W_COLUMNS[p])}\n" for p in range(1, 7)),
    "dense.json": json.dumps({"u": U, "v": V, "w": W_COLUMNS}),
    "sparse.json": json.dumps(
        {"n": [2, 2, 2], "m": 7, "u_sparse": sparse(U), "v_sparse": sparse(V), "w_sparse": sparse(W_COLUMNS)}, indent=1
    ),
    "2x2x2_m7.json": json.dumps({"u_sparse": sparse(U), "v_sparse": sparse(V), "w_sparse": sparse(W_COLUMNS)}),
    "s.mpl": f"A:=Matrix(2, 2, [[A_1_1,A_1_2],[A_2_1,A_2_2]]):\nTensor:=TriadSet([{triads()}]):\nmap(expand,A.B):\n",
    "s.m": "% three matrices\n" + matlab("U", U) + matlab("V", V) + matlab("W", W),
    "columns.m": "U = [1, 0 1 0 1 -1 0\n 0 0 0 0 1 0 1 % a row\n 0 1 0 0 0 1 ... goes on\n 0\n 1 1 0 1 0 0 -1];\n"
    + matlab("v", columns(V))
    + matlab("w", columns(W)),
    "s.ipynb": notebook("import numpy as np\n", arrays("strassen"), "!rm array( array( array("),
    "bini.txt": "# Bini's form\nBini 2 2 2 7\n\nproduct Gamma  Alpha  Beta\n"
    + "".join(f"  {p + 1} ; {' '.join(map(str, W[p]))} ; {' '.join(map(str, U[p]))} ; {' '.join(map(str, V[p]))}\n" for p in range(7)),
    "ternary.txt": "2 2 2 7\n" + "".join(" ".join(str(c) for row in table for c in row) + " \n" for table in (U, V, W_COLUMNS)),
    "yacas.txt": YACAS,
    "winograd.txt": NAMED_SUMS,
    "no_star.txt": "".join(summed("a", U[p]) + summed("b", V[p]) + summed("c", W_COLUMNS[p]) + "\n" for p in range(7)),
    "halves.txt": "".join(f"(0.5*{summed('a', U[p])})(2.*{summed('b', V[p])}){summed('c', W_COLUMNS[p])}\n" for p in range(7)),
    "signed.exp": "".join(f"-({summed('a', U[p])}*{summed('b', V[p])}*(-{summed('c', W_COLUMNS[p])}))\n" for p in range(7)),
    "imaginary.exp": "".join(f"(1j*{summed('a', U[p])})*(-1j*{summed('b', V[p])})*{summed('c', W_COLUMNS[p])}\n" for p in range(7)),
}
"""Strassen's scheme, or Winograd's, by file name."""
COMMUTING = {
    "inner.txt": """\
p1 = (a11 + b21)*(a12 + b11)
p2 = (a11 + b22)*(a12 + b12)
p3 = (a21 + b21)*(a22 + b11)
p4 = (a21 + b22)*(a22 + b12)
x1 = a11*a12
x2 = a21*a22
y1 = b11*b21
y2 = b12*b22
c11 = p1 - x1 - y1
c12 = p2 - x1 - y2
c21 = p3 - x2 - y1
c22 = p4 - x2 - y2
""",
    "inner.exp": """\
(a11+b21)*(a12+b11)*(c11)
(a11+b22)*(a12+b12)*(c21)
(a21+b21)*(a22+b11)*(c12)
(a21+b22)*(a22+b12)*(c22)
-(a11)*(a12)*(c11+c21)
-((a21)*(a22)*(c12+c22))
(b11)(b21)(-c11-c12)
(b12)(b22)(-c21-c22)
""",
}
"""Winograd's inner product (1968), which needs entries that commute."""
