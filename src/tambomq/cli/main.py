"""The command ``tambo``: what there is to type. A subcommand is imported when it is run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click

from tambomq.cli.output import run, verbose_option

PROG: Final = "tambo"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a subcommand is, and its line in the help, which must not cost an import."""

    module: str
    name: str
    help: str


COMMANDS: Final = {
    "serve": Entry("tambomq.cli.serve", "serve", "Start everything on this machine."),
    "rsmq": Entry("tambomq.cli.rsmq", "rsmq", "Look into RSMQ queues, fill and empty them."),
    "chasqui": Entry(
        "tambomq.cli.chasqui", "chasqui", "Look into ChasquiMQ queues and look after their jobs."
    ),
    "gomq": Entry("tambomq.cli.gomq", "gomq", "Publish to GOMQ keys, subscribe and observe."),
    "kqueue": Entry(
        "tambomq.cli.kqueue", "kqueue", "Send messages to KqueueMsgQ queues and receive them."
    ),
    "demo": Entry("tambomq.cli.demo", "demo", "Send some traffic through every door."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command, importing its module."""
        if (entry := COMMANDS.get(cmd_name)) is None:
            return None
        command = getattr(import_module(entry.module), entry.name)
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the names and lines of `COMMANDS`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing there.",
)
@click.version_option(package_name="tambomq", prog_name=PROG)
@verbose_option
def tambo() -> None:
    """Message queues on one Redis or Valkey, in protocols that others speak too.

    `tambo serve` starts a server of its own and tells where it is.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run ``tambo`` and end the process with its exit code."""
    sys.exit(run(tambo, PROG, args))
