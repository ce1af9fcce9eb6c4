"""A plan and the bounds of its device, as aligned lines and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from bilinear.planner.plan import Plan
from bilinear.planner.plan_files import plan_json
from bilinear.planner.roofline import Roofline
from bilinear.planner.streaming import Streaming
from bilinear.reporting.plans import bytes_text
from bilinear.reporting.table import aligned


def roofline_table(r: Roofline) -> str:
    """Intensity and balance with their meaning, traffic compared with the least possible, and the resulting tiles."""
    times = max(r.intensity / r.balance, r.balance / r.intensity)
    order = "" if r.is_proved else f" in its order (omega {r.omega:.3f})"
    rows = [
        ("intensity", f"{r.intensity:.1f} FLOP/byte", f"{r.highest_intensity:.1f} if the classical product moves each element once"),
        ("balance", f"{r.balance:.1f} FLOP/byte", f"{r.rate * 1e-12:.1f} TFLOP/s, {r.bandwidth * 1e-9:.4g} GB/s"),
        ("bound by", r.bound_by, f"intensity and balance are {times:.1f} times apart"),
        ("traffic", bytes_text(r.traffic), f"{r.factor:.2f} times the least{order}, {bytes_text(int(r.least_traffic))}"),
        ("cache", bytes_text(r.cache), f"holds three square tiles of side {r.fitting_side}; side {r.balancing_side} reaches the balance"),
    ]
    return "\n".join(aligned(rows, header=None))


def streaming_table(s: Streaming) -> str:
    """The bytes in flight of the kernel for a thin product, and its bound."""
    rows = [
        ("threshold", f"{s.threshold:.0f} columns", "above it arithmetic takes longer than reading A"),
        ("under way", bytes_text(s.under_way), f"on a multiprocessor ({s.blocks} blocks); full bandwidth needs {bytes_text(s.needed)}"),
        ("bound by", s.bound_by, f"what is under way can use {s.share:.0%} of the bandwidth (Little's law)"),
    ]
    return "\n".join(aligned(rows, header=None))


def explained_json(plan: Plan, r: Roofline, s: Streaming | None = None) -> str:
    """A plan as JSON that can be loaded again, together with these figures."""
    figures = {**asdict(r), "is_proved": r.is_proved, "factor": r.factor}
    figures |= {} if s is None else {"streaming": asdict(s)}
    return json.dumps({**json.loads(plan_json(plan)), "roofline": figures}, indent=1) + "\n"
