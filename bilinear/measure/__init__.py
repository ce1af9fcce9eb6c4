"""Measurements: the rates of a device, the times of plans, benchmarks."""
