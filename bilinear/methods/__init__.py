"""Methods: each file or folder is one way to multiply; `registry.py` is the only list of those that a planner weighs."""
