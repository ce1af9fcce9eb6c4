"""Write schemes as text that the language reads back."""

from __future__ import annotations

from dataclasses import replace

from bilinear.algebra.composition import tensor_complex
from bilinear.algebra.maps import table_of
from bilinear.errors import fail
from bilinear.frontend.algorithms import Loaded
from bilinear.frontend.files import MOST_BYTES
from bilinear.frontend.parse import MOST_EQUATION_TEXT
from bilinear.frontend.printer import print_complex, print_schedule, print_scheme
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.scheme import Scheme


def readable_text(scheme: Scheme, head: str = "", *, with_sums: bool = False, hint: str = "compose it of smaller ones") -> str:
    """The scheme after a `head` of comments: with its named sums, or as a table if these are longer than the reader allows.

    Raises `BilinearError` (E641) if the table is too large as well, or, `with_sums`, if the named sums are.
    """
    has_sums = any(linear.steps for linear in (scheme.u, scheme.v, scheme.w))
    text, most = head + print_scheme(scheme), MOST_EQUATION_TEXT if has_sums else MOST_BYTES
    size = len(text.encode())
    if len(text) <= most and size <= MOST_BYTES:
        return text
    if has_sums and not with_sums:
        table = replace(scheme, u=table_of(scheme.u), v=table_of(scheme.v), w=table_of(scheme.w))
        return readable_text(table, head, hint=hint)
    note = f"{len(text)} characters, {size} bytes; at most {most} are read"
    raise fail("E641", f"{scheme.name} {scheme.format} is too large to be written out", hint, notes=(note,))


def loaded_text(loaded: Loaded) -> tuple[str, str]:
    """A loaded algorithm as text that needs no other file and means the same, and its name there if the text holds several.

    Raises `BilinearError` (E241) if it cannot be written.
    """
    core, schedule = loaded.complex_core, loaded.schedule
    if core is not None:  # with a schedule its real products are plain
        whole = ComplexAlgorithm(core.name, core)
        if schedule is not None:
            return print_complex(whole), ""
        composed = tensor_complex(whole, loaded.scheme)
        return print_complex(composed), composed.name
    return print_scheme(loaded.scheme) + ("" if schedule is None else f"\n{print_schedule(schedule)}"), ""
