"""Proofs: exact decisions about schemes and schedules. sympy does the algebra."""
