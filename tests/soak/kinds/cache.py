"""What processes share: the kernel cache, an output folder, and kept plans, with writers that are killed and files that are damaged."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
from soak.case import PASSED, Case, Finding
from soak.children import Child, begin, import_everything
from soak.commands import check_said
from soak.whole_files import check_output, check_planted, plant

import bilinear
from bilinear.codegen.cache import default_cache
from bilinear.codegen.cuda import nvrtc
from bilinear.driver import compile
from bilinear.methods.registry import METHODS
from bilinear.planner.kept_plans import keep_plan, kept_plan, kept_plan_at
from bilinear.planner.plan import Plan

MOST_SECONDS = 240.0
SECONDS = 60.0  # How long a process may take that finds damage: a build from nothing takes a fraction of it.
ALGORITHMS = {"classical": ("sm_90",), "strassen": ("compute_90",), "split_k": ("sm_80", "compute_80")}
"""What is built, and for which architectures."""
DRIVER = 13000
WAYS = (
    *("cut", "a bit flipped", "another one's content", "empty", "longer", "unreadable"),
    *("a FIFO", "a folder", "a link to /dev/zero", "a link to itself"),
)


def skip_reason() -> str | None:
    """Why nothing can be built here."""
    return nvrtc.available()


def run(case: Case) -> str:
    """Writers that are killed, or damage, in the cache, the output folder, or among the kept plans."""
    generator = case.generator()
    if generator.random() < 0.3:
        return _plans(generator, case.folder)
    return _builds(generator, case.folder)


@cache
def _clean(name: str) -> tuple[Path, dict[str, bytes]]:
    """A cache that one clean build has filled, and the files of that build."""
    place = Path(tempfile.mkdtemp(prefix="clean-"))
    _run(name, place / "cache", place / "out", place / "printed")
    return place / "cache", _files(place / "out")


def _files(folder: Path) -> dict[str, bytes]:
    """Sources and images, which depend on nothing but the algorithm and the compiler."""
    parts = (path for name in ("src", "cubin", "ptx") for path in sorted((folder / name).rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in parts}


def _start(name: str, kept: Path, output: Path, printed: Path) -> Child:
    import_everything()

    def build() -> None:
        os.environ["BILINEAR_CACHE_DIR"] = str(kept)
        default_cache.cache_clear()
        compile(name, dtypes=("float32",), architectures=ALGORITHMS[name], output=output)

    return begin(build, printed)


def _run(name: str, kept: Path, output: Path, printed: Path) -> None:
    child = _start(name, kept, output, printed)
    check_said(child, child.wait(SECONDS), (0,))


def _builds(generator: np.random.Generator, folder: Path) -> str:
    name = list(ALGORITHMS)[int(generator.integers(len(ALGORITHMS)))]
    clean, wanted = _clean(name)
    kept, output = folder / "cache", folder / "deep" / "out"
    done = []
    planted = plant(folder, kept, output.parent)
    if generator.random() < 0.6:
        shutil.copytree(clean, kept, dirs_exist_ok=True)
        done += _damage_some(generator, kept)
    if generator.random() < 0.5:
        done.append(_kill_writers(generator, name, kept, output, folder))
    try:
        if output.exists():
            check_output(output)
        _run(name, kept, output, folder / "printed")
        check_output(output)
        found = _files(output)
        if found != wanted:
            raise Finding(
                f"other kernels than in a clean build: {sorted(n for n in wanted.keys() | found.keys() if wanted.get(n) != found.get(n))}"
            )
        check_planted(planted)
    except Finding as error:
        raise Finding(f"{error}\n{name} after: {'; '.join(done) or 'nothing'}") from None
    return PASSED


def _kill_writers(generator: np.random.Generator, name: str, kept: Path, output: Path, folder: Path) -> str:
    """Several processes write one cache and one output folder, and are killed one by one."""
    count = int(generator.integers(1, 4))
    children = [_start(name, kept, output, folder / f"printed-{i}") for i in range(count)]
    for child, moment in zip(children, generator.uniform(0, 0.5, count), strict=True):
        time.sleep(moment)
        child.send(signal.SIGKILL)
        child.wait()
    return f"{count} writers killed"


def _damage_some(generator: np.random.Generator, kept: Path) -> list[str]:
    entries = sorted(path for path in kept.glob("??/*") if path.is_file())
    told = []
    for _ in range(int(generator.integers(1, 3))):
        entry = entries[int(generator.integers(len(entries)))]
        other = entries[int(generator.integers(len(entries)))]
        told.append(damage(generator, entry, other))
    return told


def damage(generator: np.random.Generator, path: Path, other: Path) -> str:
    """Do something to a file that only another program would do; says what."""
    if not path.is_file() or not other.is_file():
        return "nothing"
    content, way = path.read_bytes(), WAYS[int(generator.integers(len(WAYS)))]
    contents = {
        "cut": content[: int(generator.integers(len(content) + 1))],
        "a bit flipped": _flipped(generator, content),
        "another one's content": other.read_bytes(),
        "empty": b"",
        "longer": content + b"x",
    }
    told = f"{path.name[:16]}: {way}"
    if way in contents:
        path.write_bytes(contents[way])
        return told
    if way == "unreadable":
        path.chmod(0)
        return told
    path.unlink()
    if way == "a FIFO":
        os.mkfifo(path)
    elif way == "a folder":
        path.mkdir()
        (path / "x").touch()
    else:
        path.symlink_to("/dev/zero" if way == "a link to /dev/zero" else path)
    return told


def _flipped(generator: np.random.Generator, content: bytes) -> bytes:
    changed = bytearray(content or b"x")
    changed[int(generator.integers(len(changed)))] ^= 1 << int(generator.integers(8))
    return bytes(changed)


@cache
def _choices() -> tuple[Plan, ...]:
    return tuple(bilinear.plan(size, size, size, "float64", device="h200") for size in (2048, 4096, 8192))


def _plans(generator: np.random.Generator, folder: Path) -> str:
    """Kept plans: writers that are killed, or damage; what is read is right or not there."""
    choices = _choices()

    def write() -> None:
        os.environ["XDG_DATA_HOME"] = str(folder)
        for _ in range(50):
            for choice in choices:
                keep_plan(choice, DRIVER)

    before = os.environ.get("XDG_DATA_HOME")
    os.environ["XDG_DATA_HOME"] = str(folder)
    done = "writers killed"
    try:
        for choice in choices:
            keep_plan(choice, DRIVER)
        if generator.random() < 0.4:
            children = [begin(write, folder / f"printed-{i}") for i in range(2)]
            for child in children:
                time.sleep(0.1 * generator.random())
                child.send(signal.SIGKILL)
                child.wait()
        else:
            path, other = (kept_plan_at(choice.problem, choice.device, DRIVER) for choice in choices[:2])
            assert path is not None and other is not None
            done = damage(generator, path, other)
        child = begin(_read_plans, folder / "printed")
        try:
            check_said(child, child.wait(SECONDS), (0,))
        except Finding as found:
            raise Finding(f"kept plans: {found}\nafter: {done}") from None
    finally:
        if before is None:
            del os.environ["XDG_DATA_HOME"]
        else:
            os.environ["XDG_DATA_HOME"] = before
    return PASSED


def _read_plans() -> None:
    """In a child: what is kept is what was planned, or is not used."""
    for choice in _choices():
        found = kept_plan(METHODS, choice.problem, choice.device, DRIVER)
        if found is not None and found.chosen != choice.chosen:
            raise Finding(f"a plan for {choice.problem} is another one")
