"""Too little memory: for a multiply, by a limit of addresses; for a command, which says so in a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from soak.case import PASSED, REFUSED, Case, Finding
from soak.children import begin, command_line, lift_limit, limit_memory
from soak.commands import check_said, draw_command

import bilinear
from bilinear.errors import BilinearError, StageError

MULTIPLIES = (
    *(("strassen", 1, "preserve"), ("winograd", 2, "preserve"), ("winograd_depth_first", 2, "preserve"), ("laderman", 1, "preserve")),
    *(("msmes", 1, "restore"), ("msmes", 2, "restore"), ("winograd_in_place", 1, "restore"), ("msmes", 1, "consume")),
    *(("auto", 0, "preserve"), ("classical", 1, "preserve")),
)
RAN, SHORT, WRONG = 0, 4, 5  # How the child of a multiply ends.


def run(case: Case) -> str:
    """A multiply or a command under a limit."""
    generator = case.generator()
    more = int(2 ** generator.uniform(12, 27))
    return _multiply(generator, case.folder, more) if generator.random() < 0.7 else _command(generator, case.folder, more)


def _command(generator: np.random.Generator, folder: Path, more: int) -> str:
    command = draw_command(generator, folder, builds=False)
    told = f"bilinear {' '.join(map(str, command.words))}, {more} bytes more"
    run_command = command_line(command.words)
    begin(run_command, folder / "printed").wait()  # its files, so that the second run has something to replace

    def work() -> None:
        limit_memory(more)
        run_command()

    child = begin(work, folder / "printed")
    code = child.wait()
    try:
        check_said(child, code, (0, 1))
        if code and len([line for line in child.text.splitlines() if line.startswith("error")]) != 1:
            raise Finding(f"not one line that says why\n{child.text[-2000:]}")
        if not command.check_files():
            raise Finding("a file that was there is gone")
    except Finding as found:
        raise Finding(f"{found}\n{told}") from None
    return REFUSED if code else PASSED


def _multiply(generator: np.random.Generator, folder: Path, more: int) -> str:
    name, levels, inputs = MULTIPLIES[int(generator.integers(len(MULTIPLIES)))]
    m, k, n = (int(e) for e in generator.integers(60, 900, 3))
    dtypes = [np.dtype(("f8", "f4", "i8")[int(generator.integers(3))])] * 3
    if inputs == "preserve" and generator.random() < 0.3:
        dtypes[2] = np.dtype("f8")
    whole = [generator.integers(-4, 5, shape) for shape in ((m, k), (k, n), (m, n))]
    a, b, out = (x.astype(dtype) for x, dtype in zip(whole, dtypes, strict=True))
    beta = int(generator.integers(0, 3))
    wanted = (whole[0].astype(float) @ whole[1].astype(float) + beta * whole[2]).astype(dtypes[2])
    options: dict[str, Any] = {"algorithm": name, "levels": levels, "inputs": inputs, "beta": beta}
    child = begin(lambda: _multiply_short(a, b, out, wanted, options, more), folder / "printed")
    code = child.wait()
    if code not in (RAN, SHORT):
        text = child.text.strip() or f"exit code {code}"
        raise Finding(f"{'no end: ' * (code is None)}{text}\n{m}x{k}x{n}, {[d.str for d in dtypes]}, {options}, {more} bytes more")
    return PASSED if code == RAN else REFUSED


def _multiply_short(a: Any, b: Any, out: Any, wanted: Any, options: dict[str, Any], more: int) -> None:
    """In a child: the result is right, or everything is as it was, or what is not is named."""
    kept = a.copy(), b.copy(), out.copy()
    small = {**options, "beta": 0}
    bilinear.matmul(a[:8, :8].copy(), b[:8, :8].copy(), **small)
    np.matmul(a, b)
    limit_memory(more)
    said: BaseException | None = None
    try:
        bilinear.matmul(a, b, out, **options)
    except (MemoryError, StageError, BilinearError) as error:
        said = error
    finally:
        lift_limit()
    names = (*said.changed, *said.undefined) if isinstance(said, StageError) else ()
    consumed = said is None and options["inputs"] == "consume"
    expected = zip("ABC", (a, b, out), (*kept[:2], wanted if said is None else kept[2]), strict=True)
    for letter, x, y in expected:
        is_named = any(name.startswith(letter) for name in names) or (consumed and letter != "C")
        if not is_named and not np.array_equal(x, y):
            print(f"{letter} is wrong, and not named, after {said!r}")
            raise SystemExit(WRONG)
    raise SystemExit(RAN if said is None else SHORT)
