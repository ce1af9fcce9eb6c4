"""The wheel with the runtime: BILINEAR_RUNTIME=1 compiles `templates/replay.c` into it, one module for every Python from 3.11 on."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RuntimeHook(BuildHookInterface[Any]):
    """Adds `bilinear/_replay.abi3.so`, and the tag of the oldest system that loads it."""

    _place: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, if that is asked for."""
        if os.environ.get("BILINEAR_RUNTIME") != "1" or version == "editable":
            return
        place = Path(tempfile.mkdtemp(), "_replay.abi3.so")
        source, include = Path(self.root, "templates", "replay.c"), sysconfig.get_path("include")
        compiler = os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fPIC", "-shared", "-s", f"-I{include}"
        subprocess.run([*compiler, str(source), "-o", str(place)], check=True)
        needed = [int(number) for number in re.findall(rb"GLIBC_2\.(\d+)", place.read_bytes())]
        build_data["force_include"][str(place)] = "bilinear/_replay.abi3.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-manylinux_2_{max(17, *needed)}_{platform.machine()}"
        self._place = place

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        if self._place is not None:
            shutil.rmtree(self._place.parent)
