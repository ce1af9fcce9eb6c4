"""What a device does with products of digits: rates that `planner/digits.py` predicts times from."""

from __future__ import annotations

from dataclasses import dataclass

Table = tuple[tuple[float, float], ...]
"""(key, value) pairs with rising positive keys; between keys the logarithm of the key interpolates, beyond them the last value holds."""


@dataclass(frozen=True)
class DigitRates:
    """Rates of float32 products by pairs of float16 digits.

    `product` is the rate of the product kernel in TFLOP/s (2 m k n for each result in float32) when the device is full, by the size
    (m k n)**(1/3) of the whole multiply, for a long multiply lowers the clock; `start` are the microseconds beyond that which a tile of the
    result takes, `direct` those where it also writes C. `search`, `expansion` and `recomposition` are the shares of the bandwidth that
    these passes reach, and `launch` the microseconds of one more launch.
    """

    product: Table
    start: float
    direct: float
    search: float
    expansion: float
    recomposition: float
    launch: float
