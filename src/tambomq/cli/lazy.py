"""Groups whose commands are imported when they are run: help must not wait for what it lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a subcommand is, and its line in the help, which must not cost an import."""

    module: str
    name: str
    help: str


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is run."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the names, in the order of the help."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  (as above)
        """Return the command, importing its module."""
        if (entry := self._entries.get(cmd_name)) is None:
            return None
        command = getattr(import_module(entry.module), entry.name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (as above)
        """Write the names and their lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])
