"""The walk in machine code: it is compiled in every process, read from no file, and a Ctrl-C does not wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bilinear.discovery import flip_search

DISCOVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
from bilinear.cli.app import main
from bilinear.discovery import flip_search
called = flip_search._called
flip_search._called = lambda ring: Path("started").touch() or called(ring)
main()
"""


def test_ctrl_c_ends_a_compilation(tmp_path: Path) -> None:
    command = (sys.executable, "-c", DISCOVER, "discover", "2,2,2", "--rank", "7", "-o", "found.bl")
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as discover:
        while not (tmp_path / "started").exists():
            assert discover.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        discover.send_signal(signal.SIGINT)
        _, told = discover.communicate(timeout=300)
    assert (discover.returncode, told) == (130, b"")
    assert not (tmp_path / "found.bl").exists()


@pytest.mark.parametrize("module", ["kernels", "binary_kernels"])
def test_machine_code_is_read_from_no_file(module: str) -> None:
    """What numba keeps is a pickle."""
    functions = [found for found in vars(flip_search.kernels(module)).values() if hasattr(found, "stats")]
    assert len(functions) > 5 and {function.stats.cache_path for function in functions} == {None}
