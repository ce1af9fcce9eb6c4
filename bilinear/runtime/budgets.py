"""How much workspace a call may use. A plan is made without what else a call imports."""

from __future__ import annotations

import re
from typing import TypeAlias

import numpy as np

from bilinear.errors import fail
from bilinear.ir.matrix import AnyArray, Array
from bilinear.ir.placement import MOST_WORKSPACE

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?([KMGT])(|B|iB)", re.ASCII)
"""A size with its unit: `2G` and `2GiB` are 2 * 1024^3 bytes, `2GB` are 2 * 1000^3."""


Workspace: TypeAlias = int | str | AnyArray | None  # `workspace=`: the most bytes, a size, or a buffer.


def budget_and_buffer(workspace: Workspace) -> tuple[int | None, Array]:
    """`workspace=` as the most bytes (None: no limit) and the caller's buffer (or None). Other values are refused (E534)."""
    if workspace is None or (isinstance(workspace, str) and workspace == "unlimited"):
        return None, None
    if isinstance(workspace, str) and workspace == "none":
        return 0, None
    if isinstance(workspace, int | np.integer) and not isinstance(workspace, bool) and workspace >= 0:
        return min(int(workspace), MOST_WORKSPACE), None
    if isinstance(workspace, str) and (size := _SIZE.fullmatch(workspace)) is not None:
        unit = 1000 if size[3] == "B" else 1024
        return int(float(size[1]) * unit ** ("KMGT".index(size[2]) + 1)), None
    if isinstance(workspace, str | bool | int | float | np.generic):
        what = f"workspace={workspace!r} is not a workspace"
        raise fail("E534", what, "give bytes, a size such as '2GiB', 'none', 'unlimited', or an array of one dimension")
    return None, workspace
