"""Write a scheme in another collection's format."""

from __future__ import annotations

from bilinear.algebra.fold_bases import fold_bases
from bilinear.errors import fail
from bilinear.interchange.write_fast_matmul import fast_matmul_files
from bilinear.interchange.write_json import json_files
from bilinear.interchange.write_npz import npz_files
from bilinear.interchange.write_sms import sms_files
from bilinear.ir.scheme import Scheme

WRITERS = {"fast-matmul": fast_matmul_files, "json": json_files, "sms": sms_files, "npz": npz_files}


def export_files(scheme: Scheme, form: str) -> dict[str, bytes]:
    """The files of a scheme in a format, by their names in its collection.

    Raises `BilinearError`: E351 if no writer has that name, E355 if the format cannot express a coefficient.
    """
    if form not in WRITERS:
        raise fail("E351", f"nothing is written as {form[:40]!r}", f"known are {', '.join(WRITERS)}")
    return WRITERS[form](scheme)


def what_is_lost(scheme: Scheme, form: str) -> tuple[str, ...]:
    """What a format cannot store, beyond names, as messages for the user."""
    lost = []
    if scheme.bases is not None and form != "sms":
        lost.append("its changes of basis are written out: the tables are those of the ordinary basis")
    if any(linear.steps for linear in (scheme.u, scheme.v, scheme.w)) and form in ("sms", "npz"):
        lost.append("its named sums are written out")
    plain = fold_bases(scheme)
    nested = any(index >= linear.inputs for linear in (plain.u, plain.v, plain.w) for step in linear.steps for index, _ in step)
    if nested and form == "fast-matmul":
        lost.append("its named sums are written over the blocks alone")
    if form == "npz" and str(scheme.ring) != "Q":
        lost.append(f"an archive tells no ring: read it with --over {scheme.ring}")
    return tuple(lost)
