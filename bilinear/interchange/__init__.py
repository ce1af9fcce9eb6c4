"""Read, prove and write tables and schedules in the formats of other collections."""
