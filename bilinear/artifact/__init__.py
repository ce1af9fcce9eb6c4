"""The output folder: written, read, run and checked."""
