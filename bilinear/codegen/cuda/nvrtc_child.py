"""The process in which NVRTC compiles one source: a request on its standard input, a reply on its standard output.

NVRTC could end the process of a caller: while it parses, it replaces the handlers of SIGINT and SIGTERM by its own, which exit with code 4.
It also exits if memory runs out. This module imports nothing of the package, so that the process starts fast.

The request is one JSON object: `path` (the search path of modules), `source`, `name`, `options`, `image` (`PTX` or `CUBIN`). The reply is a
line of JSON with `refused` (whether NVRTC found an error in the source) and `log`, followed by the image.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin.buffer)
    sys.path[:] = request.pop("path")
    refused, log, image = compiled(**request)
    sys.stdout.buffer.write(json.dumps({"refused": refused, "log": log}).encode() + b"\n" + image)
    sys.stdout.buffer.flush()


def compiled(source: str, name: str, options: list[str], image: str) -> tuple[bool, str, bytes]:
    """The reply to a request, and the image, which is empty if the source was refused."""
    from cuda.bindings import nvrtc

    def call(function: str, *arguments: object) -> object:
        status, *results = getattr(nvrtc, function)(*arguments)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise SystemExit(f"NVRTC failed in {function}: {status.name}")
        return results[0] if results else None

    def content(getter: str) -> bytes:
        size = call(f"{getter}Size", program)
        assert isinstance(size, int)
        buffer = bytes(size)
        call(getter, program, buffer)
        return buffer

    program = call("nvrtcCreateProgram", source.encode(), f"{name}.cu".encode(), 0, None, None)
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    refused = status != nvrtc.nvrtcResult.NVRTC_SUCCESS
    log = content("nvrtcGetProgramLog").rstrip(b"\0 \n").decode(errors="replace")
    return refused, log, b"" if refused else content(f"nvrtcGet{image}")


if __name__ == "__main__":
    main()
