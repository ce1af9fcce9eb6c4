"""A scheme that holds for one modulus alone, for tests with and without a GPU."""

from __future__ import annotations


def over(p: int, factor: int) -> str:
    """Strassen's scheme, its first product multiplied by a factor whose inverse is one modulo p alone."""
    inverse = pow(factor, -1, p)
    return f"""scheme only_modulo <2,2,2;7> over Z/{p}
  M1: {factor} 0 0 {factor} | 1 0 0 1 | {inverse} 0 0 {inverse}
  M2: 0 0 1 1 | 1 0 0 0 | 0 0 1 -1
  M3: 1 0 0 0 | 0 1 0 -1 | 0 1 0 1
  M4: 0 0 0 1 | -1 0 1 0 | 1 0 1 0
  M5: 1 1 0 0 | 0 0 0 1 | -1 1 0 0
  M6: -1 0 1 0 | 1 1 0 0 | 0 0 0 1
  M7: 0 1 0 -1 | 0 0 1 1 | 1 0 0 0
"""
