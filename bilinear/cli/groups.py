"""The groups of options in the help of commands."""

from __future__ import annotations

from functools import partial

import typer

problem_option = partial(typer.Option, rich_help_panel="The problem")
limit_option = partial(typer.Option, rich_help_panel="What is allowed")
output_option = partial(typer.Option, rich_help_panel="Output")
