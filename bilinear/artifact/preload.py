"""The stand-in for cuBLAS as a shared library: its text by a template, the user's C compiler, and the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from bilinear.codegen.cache import default_cache
from bilinear.codegen.render import environment
from bilinear.errors import fail
from bilinear.reading import read_own
from bilinear.runtime.standin import ADDRESSES, DTYPES, KEY, LEAST
from bilinear.version import __version__
from bilinear.writing import write_file

FLAGS = "-std=gnu11", "-O2", "-fPIC", "-shared", "-pthread"
LT = (
    "void *handle, void *how, const void *alpha, const void *a, void *at, const void *b, void *bt, const void *beta, const void *c, "
    "void *ct, void *d, void *dt, const void *algorithm, void *workspace, size_t bytes, void *stream"
)
"""The parameters of cublasLtMatmul."""


def standin_source() -> str:
    """The C text, for the Python that runs this."""
    library = Path(str(sysconfig.get_config_var("LIBDIR")), str(sysconfig.get_config_var("INSTSONAME")))
    folders = [*site.getsitepackages(), site.getusersitepackages(), str(Path(__file__).parents[2])]
    begin = f"import site, sys\nsys.executable = {sys.executable!r}\nfor folder in {folders!r}: site.addsitedir(folder)\n"
    texts = {"library": str(library), "home": sys.base_prefix, "begin": begin}
    facts = {
        "version": __version__,
        "key": KEY,
        "addresses": ADDRESSES,
        "least": LEAST,
        "functions": [*_functions(), {"name": "cublasLtMatmul", "parameters": LT, "arguments": _names(LT)}],
        "python": {name: json.dumps(text, ensure_ascii=False) for name, text in texts.items()},
    }
    return environment().get_template("standin.c.j2").render(facts)


def _functions() -> Iterator[dict[str, object]]:
    """The products of cuBLAS; those that end in _64 have 64-bit extents."""
    for suffix, index in (("", "int"), ("_64", "int64_t")):
        for batched in (False, True):
            kinds = [
                (f"cublas{dtype_letter}gemm{'StridedBatched' if batched else '_v2'}", number) for number, dtype_letter in LETTERS.items()
            ]
            for name, number in [*kinds, (f"cublasGemm{'StridedBatched' if batched else ''}Ex", None)]:
                parameters = _parameters(index, number is None, batched)
                yield {
                    "name": name + suffix,
                    "type": number,
                    "is_typed": number is None,
                    "is_batched": batched,
                    "parameters": parameters,
                    "arguments": _names(parameters),
                }


LETTERS = dict(zip(DTYPES, "SDCZ", strict=True))
"""The letters of element types in BLAS, by the numbers of cudaDataType."""


def _parameters(index: str, typed: bool, batched: bool) -> str:
    """As cublas_api.h orders them."""

    def matrix(const: str, name: str) -> str:
        step = f", long long s{name}" if batched else ""
        return f"{const}void *{name}{f', int {name}t' if typed else ''}, {index} ld{name}{step}"

    first = f"void *handle, int ta, int tb, {index} m, {index} n, {index} k, const void *alpha"
    last = f"{f', {index} batch' if batched else ''}{', int compute, int algorithm' if typed else ''}"
    return f"{first}, {matrix('const ', 'a')}, {matrix('const ', 'b')}, const void *beta, {matrix('', 'c')}{last}"


def _names(parameters: str) -> str:
    return ", ".join(parameter.split()[-1].lstrip("*") for parameter in parameters.split(", "))


def standin_library() -> Path:
    """The place of the shared library, in the cache; it is built if it is not there as it was built. Raises `BilinearError` (E614)."""
    text, kept = standin_source(), default_cache()
    compiler = _compiler()
    key = kept.key("standin", text, *compiler, *FLAGS)
    entry = kept.get(key)
    if entry is None:
        kept.put(key, "", _built(text, compiler))
        entry = kept.get(key)
    assert entry is not None
    folder = kept.folder or Path(tempfile.mkdtemp(prefix="bilinear-"))
    place = folder / f"standin-{hashlib.sha256(entry[1]).hexdigest()[:32]}.so"
    with suppress(OSError):
        if read_own(place, len(entry[1])) == entry[1]:
            return place
    write_file(place, entry[1])
    return place


def _compiler() -> tuple[str, ...]:
    """The command of a C compiler: CC, the system's, or that of the wheel `ziglang`."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return (name,)
    if find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"
    raise fail("E614", "there is no C compiler", "install gcc or clang, or `pip install ziglang`")


def _built(text: str, compiler: tuple[str, ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="bilinear-") as folder:
        source, library = Path(folder, "standin.c"), Path(folder, "standin.so")
        source.write_text(text, encoding="utf-8")
        done = subprocess.run([*compiler, *FLAGS, str(source), "-o", str(library), "-ldl"], capture_output=True, text=True, check=False)
        if done.returncode:
            said = tuple(done.stderr.replace(folder, "").splitlines()[:5])
            raise fail("E614", f"{compiler[0]} cannot build the stand-in for cuBLAS", "name another compiler by CC", notes=said)
        return library.read_bytes()
