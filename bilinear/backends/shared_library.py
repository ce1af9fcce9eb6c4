"""C texts as shared libraries: the user's C compiler, and the kernel cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from bilinear.codegen.cache import default_cache
from bilinear.errors import fail
from bilinear.reading import read_own
from bilinear.writing import write_file

FLAGS = "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread"


def shared_library(name: str, text: str, *flags: str) -> Path:
    """The place of the library, in the cache; it is built if it is not there as it was built. Raises `BilinearError` (E614)."""
    kept, command = default_cache(), (*c_compiler(), *FLAGS, *flags)
    key = kept.key(name, text, *command)
    entry = kept.get(key)
    if entry is None:
        kept.put(key, "", _built(name, text, command))
        entry = kept.get(key)
    assert entry is not None
    folder = kept.folder or Path(tempfile.mkdtemp(prefix="bilinear-"))
    place = folder / f"{name}-{hashlib.sha256(entry[1]).hexdigest()[:32]}.so"
    with suppress(OSError):
        if read_own(place, len(entry[1])) == entry[1]:
            return place
    write_file(place, entry[1])
    return place


def c_compiler() -> tuple[str, ...]:
    """The command of a C compiler: CC, the system's, or that of the wheel `ziglang`. Raises `BilinearError` (E614) without one."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return (name,)
    if find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"
    raise fail("E614", "there is no C compiler", "install gcc or clang, or `pip install ziglang`")


def module_compiler() -> str:
    """The compiler that builds modules for this Python. Raises `BilinearError` (E614) without one, or without Python's headers."""
    name = " ".join(c_compiler())
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise fail("E614", f"{name} finds no Python.h", "install Python's headers, such as python3-dev")
    return name


def _built(name: str, text: str, command: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="bilinear-") as folder:
        source, library = Path(folder, f"{name}.c"), Path(folder, f"{name}.so")
        source.write_text(text, encoding="utf-8")
        done = subprocess.run([*command, str(source), "-o", str(library), "-ldl"], capture_output=True, text=True, check=False)
        if done.returncode:
            said = tuple(done.stderr.replace(folder, "").splitlines()[:5])
            raise fail("E614", f"{command[0]} cannot build {name}.c", "name another compiler by CC", notes=said)
        return library.read_bytes()
