"""Explain what is wrong with a scheme or schedule, and find the smallest edits of its text that repair it."""
