"""The stand-in for cuBLAS as a shared library: its text by a template, the user's C compiler, and the cache."""

from __future__ import annotations

import json
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from bilinear.backends.shared_library import shared_library
from bilinear.codegen.render import environment
from bilinear.runtime.standin import ADDRESSES, KEY, LEAST
from bilinear.version import __version__

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
                yield _function(name + suffix, number, _parameters(index, number is None, batched), batched)
        for letter, number in (("S", 0), ("D", 1)):
            yield _function(f"cublas{letter}syrk_v2{suffix}", number, SYRK.replace("int ", f"{index} ").replace("ENUM", "int"))


def _function(name: str, number: int | None, parameters: str, batched: bool = False) -> dict[str, object]:
    """A function whose matrices have the type of this number, or one that it is given."""
    kind: dict[str, object] = {"is_typed": number is None, "is_batched": batched, "is_gram": "uplo" in parameters}
    return kind | {"name": name, "type": number, "parameters": parameters, "arguments": _names(parameters)}


SYRK = "void *handle, ENUM uplo, ENUM ta, int n, int k, const void *alpha, const void *a, int lda, const void *beta, void *c, int ldc"
"""The parameters of cublasSsyrk."""
LETTERS = {0: "S", 1: "D", 4: "C", 5: "Z"}  # The letters of element types in BLAS, by the numbers of cudaDataType.


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
    """The place of the shared library, in the cache. Raises `BilinearError` (E614) if it cannot be built."""
    return shared_library("standin", standin_source())
