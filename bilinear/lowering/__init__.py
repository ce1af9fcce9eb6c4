"""From a proved schedule to one that is placed in memory."""
