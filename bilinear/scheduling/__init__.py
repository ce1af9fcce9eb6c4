"""Searches for schedules of a scheme."""
