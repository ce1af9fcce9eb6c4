"""Proofs: exact decisions about schemes and schedules. sympy is the algebra."""
