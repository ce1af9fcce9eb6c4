"""From a proved scheme to a schedule that can run, placed in memory."""
