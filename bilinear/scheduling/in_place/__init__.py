"""In-place schedules: sums are formed in A and B themselves."""
