"""What is wrong with a scheme or a schedule, and the smallest edits of its text that mend it."""
