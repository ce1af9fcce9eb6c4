"""Hostile input under limits: what the command line says about a text, in how much time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_MEMORY = 2**30  # Bytes of address space on top of what importing everything takes.
MOST_SECONDS = 30
"""Ten times the usual time on a quiet core, to allow for slow or shared machines: the test detects growth, not speed."""

_RUNNER = """
import contextlib, io, json, os, resource, sys, time, traceback
from bilinear import cli
from bilinear.driver import verify
with contextlib.suppress(Exception):
    verify("msmes")
def answer(name, words):
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + %d,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (%d,) * 2)
    sys.argv = ["bilinear", *words]
    out, err, status, begin = io.StringIO(), io.StringIO(), 0, time.process_time()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        status = traceback.format_exc()[-2000:]
    told = {"status": status or 0, "out": out.getvalue(), "err": err.getvalue(), "seconds": time.process_time() - begin}
    print(json.dumps([name, told]), flush=True)
for name, words in json.load(sys.stdin):
    child = os.fork()
    if not child:
        answer(name, words)
        os._exit(0)
    os.waitpid(child, 0)
"""


def answers(texts: Mapping[str, str | bytes], folder: Path, *options: str) -> dict[str, Any]:
    """What `bilinear verify` says about each of the texts: status, output, errors and processor time; a traceback stands as the status."""
    jobs = []
    for number, (name, text) in enumerate(texts.items()):
        path = folder / f"x{number}.bl"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        jobs.append((name, ["verify", str(path), *options]))
    done = subprocess.run(
        [sys.executable, "-c", _RUNNER % (MOST_MEMORY, 2 * MOST_SECONDS)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = dict(json.loads(line) for line in done.stdout.splitlines())
    assert told.keys() == texts.keys(), "a child died without an answer"
    return told
