"""The walk in machine code: another process compiles it once, and a Ctrl-C ends that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a process in the background may ignore it
COMPILED = """
import sys, threading
from pathlib import Path
from bilinear.discovery import compiled_walk
called, threads = compiled_walk._called, []
compiled_walk._called = lambda *given: threads.append(threading.current_thread()) or called(*given)
walk = compiled_walk.compiled_walk(Path(sys.argv[1]), "Z")
print(sum(walk.stats.cache_hits.values()), threading.main_thread() in threads)
"""


def environment(folder: Path, begin: str) -> dict[str, str]:
    """The variables with which every process that compiles runs `begin` first: Python imports `sitecustomize` when it starts."""
    text = f"import os, sys, time\nif 'bilinear.discovery.compiled_walk' in sys.orig_argv:\n    {begin}\n"
    (folder / "sitecustomize.py").write_text(text)
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    return {**os.environ, "PYTHONPATH": path, "BILINEAR_CACHE_DIR": str(folder / "cache"), "NUMBA_CACHE_DIR": ""}


def test_ctrl_c_ends_a_compilation(tmp_path: Path) -> None:
    started = tmp_path / "started"
    begin = f"time.sleep(0.5); os.symlink(str(os.getpid()), {str(started)!r}); time.sleep(600)"
    program = f"{INTERRUPTIBLE}; from bilinear.cli.app import main; main()"
    command = (sys.executable, "-c", program, "discover", "2,2,2", "--rank", "7", "-o", "found.bl")
    with subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path, begin), stderr=subprocess.PIPE) as discover:
        while not started.is_symlink():
            assert discover.poll() is None
            time.sleep(0.05)
        discover.send_signal(signal.SIGINT)
        _, told = discover.communicate(timeout=300)
    assert (discover.returncode, told) == (130, b"")
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(started.readlink())), 0)
    assert not (tmp_path / "found.bl").exists()


@pytest.mark.slow
def test_another_process_compiles(tmp_path: Path) -> None:
    """The walk is loaded beside the main thread: what numba calls back cannot hand on a Ctrl-C."""
    command = (sys.executable, "-c", COMPILED, str(tmp_path / "cache"))
    done = subprocess.run(command, env=environment(tmp_path, "pass"), capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n"
