"""The command line."""

from bilinear.cli.app import main

__all__ = ["main"]
