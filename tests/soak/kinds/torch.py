"""PyTorch's tensors on the CPU: a case of another kind of call, with its arrays as tensors."""

from __future__ import annotations

from functools import partial
from importlib import import_module

from soak import homes
from soak.case import Case
from soak.scene import Scene, play

skip_reason = partial(homes.skip_reason, "torch")


def run(case: Case) -> str:
    """One call."""

    def act(scene: Scene) -> str:
        kind = scene.one_of(homes.CALLS)
        scene.say(f"as in the kind {kind}")
        return str(import_module(f"soak.kinds.{kind}").act(scene))

    return play(case, act, "torch")
