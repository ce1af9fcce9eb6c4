"""Facts about schemes, maps and schedules that several rooms need; nothing here changes the IR."""
