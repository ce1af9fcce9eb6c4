"""Rewrites of schedules: one pass a file; a valid schedule in, a valid schedule out."""
