"""New schemes, found by walks in the flip graph."""
