"""How ``chasqui`` draws tables: a solid frame, a double rule below the header, dashed columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click

from tambomq.cli.output import drawn, visible

_FRAME: Final = """\
┌─┬┐
│ ┆│
╞═╪╡
│ ┆│
├╌┼┤
├╌┼┤
│ ┆│
└─┴┘"""


def boxed(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* under *columns*; a terminal gets what fits it, a pipe whole cells.

    What is `None` or empty is shown as ``-``.
    """
    # rich takes longer to import than most commands to run.
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout is not None and sys.stdout.isatty()
    table = Table(box=Box(_FRAME), header_style="bold", safe_box=False)
    for column in columns:
        table.add_column(Text(_cell(column)), no_wrap=not terminal, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    return drawn(table, terminal=terminal).rstrip("\n")


def emit_boxed(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table."""
    click.echo(boxed(columns, rows))


def _cell(value: object) -> str:
    text = "" if value is None else visible(str(value))
    return text.replace("\n", "\\n").replace("\t", "\\t") or "-"
