"""The output folder: write it, read it, run it and check it."""
