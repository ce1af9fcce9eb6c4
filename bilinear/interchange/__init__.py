"""Readers for tables and schedules that others have published in their own formats."""
