"""Questions about the IR that several rooms ask, answered without changing it."""
