"""Integers of any size and products modulo p on a pretended GPU: cases of `products` and `modulus` whose arrays lie there."""

from __future__ import annotations

from functools import partial

from soak import homes
from soak.case import Case
from soak.homes import MOST_SECONDS
from soak.kinds import modulus, products
from soak.scene import Scene, play

__all__ = ["MOST_SECONDS", "run", "skip_reason"]
skip_reason = partial(homes.skip_reason, "pretended")


def run(case: Case) -> str:
    """One product."""

    def act(scene: Scene) -> str:
        return modulus.act(scene) if scene.chance(0.5) else products.act(scene, "iu")

    return play(case, act, "pretended")
