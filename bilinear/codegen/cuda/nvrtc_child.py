"""The process in which NVRTC compiles one source: a request on its standard input, a reply on its standard output.

NVRTC could end the process of a caller: while it parses, it replaces the handlers of SIGINT and SIGTERM by its own, which exit with code 4.
It also exits if memory runs out. This module imports nothing of the package, so that the process starts fast.

The request is one JSON object: `library` (the place of NVRTC), `source`, `name`, `options`, `image` (`PTX` or `CUBIN`). The reply is a line
of JSON with `refused` (whether NVRTC found an error in the source) and `log`, followed by the image.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from ctypes import CDLL, byref, c_char_p, c_int, c_size_t, c_void_p, create_string_buffer
from os.path import dirname, join, realpath


def main() -> None:
    """Answer one request."""
    refused, log, image = compiled(**json.load(sys.stdin.buffer))
    sys.stdout.buffer.write(json.dumps({"refused": refused, "log": log}).encode() + b"\n" + image)
    sys.stdout.buffer.flush()


def compiled(library: str, source: str, name: str, options: list[str], image: str) -> tuple[bool, str, bytes]:
    """The reply to a request, and the image, which is empty if the source was refused."""
    nvrtc, program, major, minor = CDLL(library), c_void_p(), c_int(), c_int()
    nvrtc.nvrtcVersion(byref(major), byref(minor))
    with suppress(OSError):  # what NVRTC looks for by its name alone lies beside it in its wheel, where the loader does not search
        CDLL(join(dirname(realpath(library)), f"libnvrtc-builtins.so.{major.value}.{minor.value}"))

    def call(function: str, *arguments: object) -> None:
        status = nvrtc[function](*arguments)
        if status:
            raise SystemExit(f"NVRTC failed in {function}: status {status}")

    def content(getter: str) -> bytes:
        size = c_size_t()
        call(f"{getter}Size", program, byref(size))
        buffer = create_string_buffer(size.value)
        call(getter, program, buffer)
        return buffer.raw

    call("nvrtcCreateProgram", byref(program), source.encode(), f"{name}.cu".encode(), 0, None, None)
    given = (c_char_p * len(options))(*(option.encode() for option in options))
    refused = nvrtc.nvrtcCompileProgram(program, len(options), given) != 0
    log = content("nvrtcGetProgramLog").rstrip(b"\0 \n").decode(errors="replace")
    return refused, log, b"" if refused else content(f"nvrtcGet{image}")


if __name__ == "__main__":
    main()
