"""The command ``tambo pipeline``: what Spark does for queues. Each command is in a file of its own."""

from __future__ import annotations

from typing import Final

import click

from tambomq.cli.lazy import Entry, LazyGroup

COMMANDS: Final[dict[str, Entry]] = {}


@click.group(cls=LazyGroup, entries=COMMANDS)
def pipeline() -> None:
    """Archive what passes through queues, look at it, mend it and move it, with Spark."""
