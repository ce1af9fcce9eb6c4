"""Kernels to CUDA C by jinja2. A template gets a kernel and prints it; it decides nothing.

`unroll for` in a template is a loop below the pragma that unrolls it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from bilinear.ir.element import Element, ModularElement
from bilinear.ir.kernel import Argument, Port
from bilinear.ir.launch import DirectKernel, InputKernel, Kernel
from bilinear.ir.linear import Add, Form
from bilinear.ir.number import HELD, Coefficient, Symbolic, is_negative, nearest, residue, to_float
from bilinear.resources import templates_folder
from bilinear.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment

Filter = Callable[..., object]


def templates(filters: Mapping[str, Filter], autoescape: bool, finalize: Filter | None = None) -> Environment:
    """A jinja2 environment: it finds the package's templates, and undefined names are errors."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from jinja2.ext import Extension

    class UnrolledLoops(Extension):
        def preprocess(self, source: str, _name: str | None, _filename: str | None = None) -> str:
            return re.sub(r"^( *)unroll for", r"\1#pragma unroll\n\1for", source, flags=re.MULTILINE)

    environment = Environment(
        extensions=[UnrolledLoops],
        loader=FileSystemLoader(templates_folder()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=autoescape,
        finalize=finalize,
    )
    environment.filters |= filters
    return environment


@cache
def environment() -> Environment:
    """The environment of kernels."""
    filters: dict[str, Filter] = {
        "comment": _comment,
        "parameter": _parameter,
        "signature": _signature,
        "rows": _rows,
        "constant": _constant,
        "added": _added,
        "choose": _choose,
        "flag": _flag,
        "address": _address,
        "hexadecimal": hex,
        "exact": float.hex,
    }
    return templates(filters, autoescape=False)


def render(kernel: Kernel | InputKernel | DirectKernel) -> str:
    """The self-contained CUDA C source of one kernel; the same kernel always gives the same text.

    `Real` is the type in which it computes, and `Lanes` are neighbours of it. What is in global memory is `stored` and `packed`: the same
    where elements are computed in their own type.
    """
    stored, packed = ("Real", "Lanes") if kernel.element.wider is None else ("Stored", "StoredLanes")
    return environment().get_template(kernel.template).render(kernel=kernel, stored=stored, packed=packed)


def _comment(text: str) -> str:
    """Text that stays in a one-line comment: no line end, no end of a comment, no backslash (or trigraph of one) at the end."""
    return visible(text).replace("*/", "* /").replace("??/", "?? /").rstrip("\\")


def _parameter(argument: Argument, stored: str) -> str:
    """An argument as a C parameter; pointers are to the type that is stored."""
    types = {
        "pointer": f"{stored}* ",
        "index": "Index ",
        "scalar": "Real ",
        "flag": "int* ",
        "words": "unsigned* ",
        "digits": "unsigned short* ",
        "bytes": "unsigned char* ",
        "map": "const __grid_constant__ TensorMap ",
    }
    return types[argument.kind] + argument.name


def _signature(kernel: Kernel | DirectKernel, stored: str, bounds: str = "") -> str:
    """The head of the function; pointers are to the type that is stored."""
    bounds = bounds or getattr(kernel, "bounds", "") or str(kernel.threads[0] * kernel.threads[1])
    parameters = ", ".join(_parameter(argument, stored) for argument in kernel.arguments)
    return f'extern "C" __global__ void __launch_bounds__({bounds})\n{kernel.name}({parameters})'


def _rows(table: Iterable[Iterable[object]]) -> str:
    """The rows of a table as initialisers, a line each."""
    return "\n".join(f"    {{ {', '.join(map(str, row))} }}," for row in table)


def _constant(value: Coefficient, element: Element) -> str:
    """An exact number as a constant of the type in which elements are computed, rounded once.

    A fraction of small integers is a division in the type. For other rationals the text has the nearest number of the type, and the
    rational itself beside it, for other element types. Modulo p it is a residue.
    """
    if isinstance(element, ModularElement):
        own = residue(value, element.modulus)
        return f"Coefficient{{ {own}ull, {(own << 64) // element.modulus}ull }}"
    if isinstance(value, Symbolic):
        return f"Real({to_float(value)!r})"
    fraction = Fraction(value)
    if max(abs(fraction.numerator), fraction.denominator) > HELD:
        return f'NEAREST({nearest(fraction, element.arithmetic.name).hex()}, "{fraction}")'
    if fraction.denominator == 1:
        return f"Real({fraction.numerator})"
    return f"(Real({fraction.numerator}) / Real({fraction.denominator}))"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _address(port: Port) -> str:
    x = port.space
    moves = [f"{count} * opaque({x}_{way})" for count, way in ((port.down, "down"), (port.right, "right")) if count]
    return " + ".join([f"{x}_at", *moves])


def _added(add: Add, lanes: int, element: Element) -> str:
    """The statements that form a sum, or add to it, lane by lane."""
    into, sign = f"v{add.value}.lane", "=" if add.begins else "+="
    return "\n".join(f"    {into}[{e}] {sign} {_combination(add.terms, e, element)};" for e in range(lanes))


def _combination(form: Form, lane: int, element: Element) -> str:
    """A linear form as a C expression over one lane of `v0`, `v1`, ..."""
    if not form:
        return "Real(0)"
    text = ""
    for index, coefficient in form:
        is_residue = isinstance(element, ModularElement) and coefficient != -1  # one has no sign
        sign = "-" if is_negative(coefficient) and not is_residue else "+"
        size: Coefficient = -coefficient if sign == "-" else coefficient
        value = f"v{index}.lane[{lane}]"
        term = value if size == 1 else f"{_constant(size, element)} * {value}"
        text += (f" {sign} " if text else "-" * (sign == "-")) + term
    return text


def _choose(names: Iterable[str], selector: str, suffix: str = "") -> str:
    """The C expression that picks the name numbered by `selector`."""
    *others, last = [name + suffix for name in names]
    if all(name == last for name in others):
        return last
    return "".join(f"{selector} == {i} ? {name} : " for i, name in enumerate(others)) + last
