"""The tables of ``chasqui``: a solid frame, a double rule below the header, dashed columns.

``tambo chasqui`` draws them as all of ``tambo`` does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import click

from tambomq.cli.output import drawn, table, visible

_FRAME: Final = """\
┌─┬┐
│ ┆│
╞═╪╡
│ ┆│
├╌┼┤
├╌┼┤
│ ┆│
└─┴┘"""


def rows_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* under *columns*, in the look of the command that was typed."""
    text = table(columns, rows) if is_tambo() else _framed(columns, rows)
    return text.rstrip("\n")


def emit_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table."""
    click.echo(rows_text(columns, rows))


def is_tambo() -> bool:
    """Return whether ``tambo chasqui`` was typed, rather than ``chasqui``."""
    return click.get_current_context().find_root().command.name == "tambo"


def _framed(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; a terminal gets what fits it, a pipe whole cells.

    What is `None` or empty is shown as ``-``.
    """
    # rich takes longer to import than most commands to run.
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout is not None and sys.stdout.isatty()
    made = Table(box=Box(_FRAME), header_style="bold", safe_box=False)
    for column in columns:
        made.add_column(Text(_cell(column)), no_wrap=not terminal, overflow="fold")
    for row in rows:
        made.add_row(*(Text(_cell(value)) for value in row))
    return drawn(made, terminal=terminal)


def _cell(value: object) -> str:
    text = "" if value is None else visible(str(value))
    return text.replace("\n", "\\n").replace("\t", "\\t") or "-"
