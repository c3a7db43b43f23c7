"""Groups whose commands are imported when they are run: help must not wait for what it lists."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The module of a subcommand, and its line in the help, which needs no import."""

    module: str
    name: str
    help: str


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is run."""

    def __init__(self, *args: Any, entries: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the names, in the order of the help."""
        return list(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, importing its module."""
        if (entry := self._entries.get(cmd_name)) is None:
            return None
        try:
            command = getattr(import_module(entry.module), entry.name)
        except ModuleNotFoundError:
            # While a shell completes, nobody wants to read which extra is missing.
            if ctx.resilient_parsing:
                return None
            raise
        return command if isinstance(command, click.Command) else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with *incomplete*, importing none, and the options."""
        found = [
            CompletionItem(name, help=entry.help)
            for name, entry in self._entries.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; one that does not exist gets what may have been meant."""
        name = args[0]
        if name in self._entries or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = [f"`{ctx.command_path} {each}`" for each in self._meant(ctx, name)]
        hint = f" Did you mean {' or '.join(meant)}?" if meant else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)

    def _meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return commands that have *name* one level below; if none, those with a name like it."""
        below = []
        for each in self._entries:
            # One whose extra is not installed is not searched.
            with suppress(ModuleNotFoundError):
                group = self.get_command(ctx, each)
                if isinstance(group, click.Group) and name in group.list_commands(ctx):
                    below.append(f"{each} {name}")
        return below or get_close_matches(name, self._entries)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  (as above)
        """Write the names and their lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._entries.items()])
