"""Plan files: a plan comes back equal and runs the same; a damaged one is refused (E545, E546), or is a plan that multiplies."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from soak.case import PASSED, REFUSED, Case, Finding
from soak.command import drawn
from soak.mangle import NUMBERS, mangled_bytes
from soak.scene import Scene, play, scaled, wide

import bilinear
from bilinear.errors import BilinearError

WORDS = ("float32", "complex64", "complex128", "float16", "int8", "winograd", "strassen", "msmes", "preserve", "consume", "pairs")
PLAIN = (0, 1, -1, 2, 3, 0.5, 1e308, float("nan"), 2**31, 2**63, 10**30, True)
VALUES: tuple[Any, ...] = (*PLAIN, None, [], {}, ["strassen"], [1, 1], "", *WORDS)


def run(case: Case) -> str:
    """One plan, its file, and a damaged copy."""
    draw = drawn(case)

    def act(scene: Scene) -> str:
        plan, shape, dtype = _plan(scene)
        if plan is None:
            return REFUSED
        path, bad = case.folder / "plan.json", case.folder / "bad.json"
        bilinear.save_plan(plan, path)
        if bilinear.load_plan(path) != plan:
            raise Finding(f"the plan is another in its file {path}")
        text = path.read_bytes()
        if draw.random() < 0.3:
            bad.write_bytes(mangled_bytes(text, draw))
        else:
            document = json.loads(text)
            for _ in range(draw.randint(1, 2)):
                _change(document, draw)
            bad.write_text(json.dumps(document))
        try:
            other = bilinear.load_plan(bad)
        except BilinearError as error:
            if error.diagnostics[0].code not in ("E545", "E546"):
                raise Finding(f"{bad}: {error}") from error
            other = plan
        scene.say(f"matmul(plan={bad if other != plan else path})")
        str(other), repr(other)
        return _multiply(scene, other, shape, dtype, other == plan)

    return play(case, act, "numpy")


def _plan(scene: Scene) -> tuple[Any, Any, Any]:
    m, k, n = (int(x) for x in scene.draw.integers(1, 70, 3))
    shape = m, k, n
    dtype = scene.dtype("fc")
    options: dict[str, Any] = {"device": "h200", "inputs": scene.one_of(("preserve", "preserve", "restore", "consume"))}
    if scene.chance(0.8):
        options["levels"] = scene.one_of((("strassen",), ("winograd", "winograd"), ("msmes",), ("split_k",), ("laderman", "strassen"), ()))
    if scene.chance(0.2):
        options["workspace"] = int(scene.draw.integers(0, 100_000))
    scene.say(f"plan({shape}, {dtype}, {options})")
    try:
        return bilinear.plan(m, k, n, str(dtype), **options), shape, dtype
    except BilinearError:
        return None, shape, dtype


def _multiply(scene: Scene, plan: Any, shape: Any, dtype: Any, is_own: bool) -> str:
    """By the plan; one of another problem is refused for any reason."""
    m, k, n = shape
    a, b = scene.integers((m, k), dtype), scene.integers((k, n), dtype)
    out = scene.out((m, n), dtype, a, b)
    factors = scene.factors(dtype, out)
    exact = scaled(wide(a.values) @ wide(b.values), dtype, factors, out)
    call = partial(bilinear.matmul, a.array, b.array, None if out is None else out.array, plan=plan, **factors)
    writes = plan.problem.inputs if plan.problem.inputs in ("restore", "consume") else ""
    reasons = scene.reasons({"inputs": writes or "preserve", "workspace": 0}, dtype, out, factors) | ({"E532"} if is_own else {"any"})
    scene.settle(call, exact, dtype, [out], reasons, written=(a, b) if writes else ())
    return PASSED


def _change(document: Any, draw: Any) -> None:
    """Change one field somewhere in a document."""
    at: Any = document
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = draw.choice(keys)
        if isinstance(at[key], dict | list) and at[key] and draw.random() < 0.8:
            at = at[key]
            continue
        way = draw.random()
        if way < 0.1:
            del at[key]
        elif way < 0.2 and isinstance(at[key], int | float):
            at[key] = at[key] * draw.choice((-1, 2, 10**6)) + draw.choice((0, 1))
        else:
            at[key] = draw.choice(VALUES) if draw.random() < 0.9 else draw.choice(NUMBERS)
        return
