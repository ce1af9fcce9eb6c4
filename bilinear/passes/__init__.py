"""Rewrites of schedules: one pass a file, valid in, valid out."""
