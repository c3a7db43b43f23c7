"""Input that may be long: standard input, how much of it there is, and a bar while it is sent."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import BinaryIO, cast

import click

Tick = Callable[[int, int], object]
"""Called with the number sent so far, and the position in the input."""


def standard_input() -> BufferedReader:
    """Return standard input, as bytes."""
    if sys.stdin is None:
        raise click.UsageError("there is nothing to read: standard input is closed")
    return cast("BufferedReader", sys.stdin.buffer)


def size_of(stream: BinaryIO | None) -> int | None:
    """How many bytes there are to read; `None` for a pipe, which does not know."""
    try:
        found = os.fstat(stream.fileno()) if stream else None
    except OSError:
        return None
    return found.st_size if found and stat.S_ISREG(found.st_mode) else None


@contextmanager
def progress(doing: str, what: str, total: int | None, *, shown: bool = True) -> Iterator[Tick]:
    """Yield what to call after each batch: it draws a bar, if stderr is a terminal."""
    if not shown or sys.stderr is None or not sys.stderr.isatty():  # `None`: closed before us
        yield lambda _sent, _read: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(doing),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.fields[sent]}} {what}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, sent=0)
        yield lambda sent, read: bar.update(task, completed=read, sent=sent)
