"""Depth-first schedules: one product at a time, A and B never written."""
