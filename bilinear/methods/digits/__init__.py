"""Products of digits: numbers are cut into narrow ones, which the matrix units multiply, and put together again (docs/digits.md)."""
