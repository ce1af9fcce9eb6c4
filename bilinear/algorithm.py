"""Algorithms as the public API returns them: how to get one, and its methods."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from bilinear import frontend
from bilinear.frontend import Loaded
from bilinear.ir.matrix import AnyArray, Array, ArrayT
from bilinear.runtime.matmul import matmul
from bilinear.runtime.options import MatmulOptions
from bilinear.source import Source
from bilinear.visible import visible_lines

if TYPE_CHECKING:
    from bilinear.artifact.write import Compiled
    from bilinear.driver import CompileOptions
    from bilinear.interchange.importing import Imported
    from bilinear.reporting.report import Report


@dataclass(frozen=True)
class Algorithm(Loaded):
    """A scheme, with its in-place schedule if it has one, as `bilinear.load` returns it."""

    def __repr__(self) -> str:
        scheme = self.scheme
        what = f"{scheme.name} <{scheme.m},{scheme.k},{scheme.n};{scheme.rank}> over {scheme.ring}"
        return f"<Algorithm {what}{f', scheduled by {self.schedule.name}' if self.schedule is not None else ''}>"

    def __str__(self) -> str:
        """The algorithm in the language, as `bilinear show` prints it."""
        from bilinear.frontend.printer import print_schedule, print_scheme

        schedule = "" if self.schedule is None else f"\n{print_schedule(self.schedule)}"
        return f"{print_scheme(self.scheme)}{schedule}".rstrip("\n")

    def _repr_html_(self) -> str:
        """The algorithm in the language, in a box that scrolls."""
        text = escape(visible_lines(str(self).splitlines()))
        return f'<b>{escape(repr(self)[1:-1])}</b><pre style="max-height: 30em; overflow: auto">{text}</pre>'

    def verify(self, *, levels: int = 1, inputs: str | None = None) -> Report:
        """Prove the scheme, and its schedule at `levels` levels, as `bilinear verify` does.

        Parameters
        ----------
        levels : int
            The number of recursion levels.
        inputs : {"preserve", "restore", "consume"}, optional
            What the schedule may do to A and B; the default is what it is made for.

        Returns
        -------
        Report
            The proved facts, with costs and error bounds; its text is the output of `bilinear verify`.

        Raises
        ------
        BilinearError
            If a proof fails.

        Examples
        --------
        >>> import bilinear
        >>> bilinear.load("strassen").verify(levels=2)
        <Report on strassen: proved; strassen <2,2,2;7> over Q>
        """
        from bilinear import driver  # the compiler and the reports, which products do not need

        return driver.verify(self, levels=levels, inputs=inputs)

    def compile(self, **options: Unpack[CompileOptions]) -> Compiled:
        """Compile to CUDA kernels; the options are those of `bilinear.compile`."""
        from bilinear import driver

        return driver.compile(self, **options)

    @overload
    def matmul(
        self, a: ArrayT, b: ArrayT, out: ArrayT | None = None, *, dtype: None = None, **options: Unpack[MatmulOptions]
    ) -> ArrayT: ...
    @overload
    def matmul(self, a: object, b: object, out: object = None, *, dtype: object = None, **options: Unpack[MatmulOptions]) -> AnyArray: ...
    def matmul(self, a: Array, b: Array, out: Array = None, *, dtype: Array = None, **options: Unpack[MatmulOptions]) -> Array:
        """Multiply with this algorithm; the options are those of `bilinear.matmul`."""
        return matmul(a, b, out, algorithm=self, dtype=dtype, **options)


def load(name_or_path: str | Path) -> Algorithm:
    """The algorithm of a `.bl` file, or of a name among the shipped ones (`bilinear list`).

    Parameters
    ----------
    name_or_path : str or Path
        A name is looked for in the working folder, in the user's own algorithms (`bilinear add`) and among the shipped ones.

    Returns
    -------
    Algorithm
        Its text is the algorithm in the language.

    Raises
    ------
    BilinearError
        If there is none, or if the file does not say an algorithm.

    Examples
    --------
    >>> import bilinear
    >>> bilinear.load("msmes")
    <Algorithm strassen <2,2,2;7> over Q, scheduled by msmes>
    """
    loaded = frontend.load(name_or_path)
    return Algorithm(loaded.scheme, loaded.schedule, loaded.source, loaded.path)


def from_arrays(
    u: object, v: object, w: object, *, ring: str | None = None, transposed: bool | None = None, name: str = "arrays"
) -> Algorithm:
    """The algorithm of three tables of numbers, proved.

    Parameters
    ----------
    u, v, w : array_like
        U over the blocks of A, V over those of B, W over those of C: NumPy arrays or nested lists of integers, floats, fractions or
        complex numbers, a product a row or a column.
    ring : str, optional
        Such as "Z", "Q" or "Z/2". By default it is found out.
    transposed : bool, optional
        Whether the blocks of C are numbered column by column. By default it is found out.
    name : str
        The name of the algorithm.

    Returns
    -------
    Algorithm

    Raises
    ------
    BilinearError
        If the tables do not multiply matrices; it names the equations that fail.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import bilinear
    >>> bilinear.from_arrays([[1]], [[2]], [[Fraction(1, 2)]], name="halves")
    <Algorithm halves <1,1,1;1> over Q>
    """
    from bilinear.interchange.importing import import_arrays

    return _in_the_language(import_arrays(u, v, w, ring=ring, transposed=transposed, name=name))


def import_table(
    path: str | Path, *, format: str = "", ring: str | None = None, transposed: bool | None = None, entry: str = ""
) -> Algorithm:
    """The algorithm in a published table, proved, as `bilinear import` reads it.

    Parameters
    ----------
    path : str or Path
        The file (docs/formats.md).
    format : str
        The name of its format. By default it is found out.
    ring : str, optional
        Such as "Z", "Q" or "Z/2". By default it is found out.
    transposed : bool, optional
        Whether the blocks of C are numbered column by column. By default it is found out.
    entry : str
        Which one of several in a file.

    Returns
    -------
    Algorithm

    Raises
    ------
    BilinearError
        If the file cannot be read, or if its table does not multiply matrices.

    Examples
    --------
    >>> import pathlib
    >>> import bilinear
    >>> table = '{"n": [1, 2, 1], "m": 2, "u": [[1, 0], [0, 1]], "v": [[1, 0], [0, 1]], "w": [[1], [1]]}'
    >>> _ = pathlib.Path("inner.json").write_text(table)
    >>> bilinear.import_table("inner.json")
    <Algorithm inner <1,2,1;2> over Q>
    """
    from bilinear.interchange.importing import import_scheme

    return _in_the_language(import_scheme(path, format=format, ring=ring, transposed=transposed, entry=entry))


def _in_the_language(imported: Imported) -> Algorithm:
    """An algorithm that was read from elsewhere, with the text that the language has for it."""
    from bilinear.algebra.maps import on_blocks
    from bilinear.frontend.printer import print_scheme

    scheme = on_blocks(imported.scheme)  # the language writes changes of basis from blocks to as many values
    file = f"{scheme.name}.bl"
    return Algorithm(scheme, None, Source(file, print_scheme(scheme)), Path(file))
