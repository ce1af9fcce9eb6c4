"""In-place schedules: sums in A and B themselves."""
