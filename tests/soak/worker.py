"""A process that runs cases: each line that it reads is one, each line that it writes what became of one."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from soak.case import PASSED, REFUSED, Case, Finding
from soak.scene import play

FINDING = "finding"


def attempt(package: str, kind: str, seed: int, folder: Path) -> tuple[str, str]:
    """What a case ends as, and the text of a finding. Whatever a case raises is one."""
    try:
        module, case = importlib.import_module(f"{package}.{kind}"), Case(kind, seed, folder)
        result = play(case, module.act) if hasattr(module, "act") else module.run(case)
    except Finding as found:
        return FINDING, str(found)
    except BaseException:
        return FINDING, traceback.format_exc()
    return (result, "") if result in (PASSED, REFUSED) else (FINDING, f"run() gave {result!r}")


def main(package: str) -> None:
    """Run cases until there is nothing to read.

    The pipes to the runner are moved out of the way of what cases print and read. The process ends without waiting for threads.
    """
    asked, told = os.fdopen(os.dup(0)), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    home = Path.cwd()
    for line in asked:
        answer = _run(package, json.loads(line))
        os.chdir(home)
        os.write(told, (json.dumps(answer) + "\n").encode())
    os._exit(0)


def _run(package: str, case: dict[str, Any]) -> dict[str, Any]:
    """One case in its folder, which stays where there is a finding."""
    folder = Path(case["folder"])
    folder.mkdir(parents=True)
    os.chdir(folder)
    begin = time.monotonic()
    result, text = attempt(package, case["kind"], case["seed"], folder)
    seconds = time.monotonic() - begin
    if result != FINDING:
        shutil.rmtree(folder, ignore_errors=True)
    return {"result": result, "text": text, "seconds": seconds}


if __name__ == "__main__":
    main(sys.argv[1])
