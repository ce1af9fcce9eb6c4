"""Tables and schedules that others publish in their own formats: read, proved, and written."""
