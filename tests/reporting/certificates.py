"""Certificates to tamper with, and whether what they say is so."""

from __future__ import annotations

import random
from typing import Any

from soak.statements import Untrue, is_so

from bilinear.frontend import load
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.reporting.certificate import certificate

Certificate = dict[str, Any]
ALGORITHMS = ("hopcroft_kerr", "laderman", "msmes", "naive2x2", "strassen", "winograd", "winograd_depth_first")


def certificate_of(name: str, levels: int = 1) -> Certificate:
    """The certificate of a shipped algorithm."""
    loaded = load(name)
    prepared = prepare(loaded.scheme, loaded.schedule, levels, natural_inputs(loaded.schedule))
    return certificate(prepared.scheme, [prepared.authored, prepared.schedule])


def is_right(told: Certificate, generator: random.Random) -> bool:
    """The oracle: Brent's equations, and the schedules run on random matrices modulo a prime, beside the claims."""
    try:
        is_so(told, generator)
    except (Untrue, KeyError, IndexError):
        return False
    return True
