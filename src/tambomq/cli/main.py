"""The command ``tambo``: what there is to type. A subcommand is imported when it is run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from tambomq.cli.lazy import LazyCommand, LazyGroup
from tambomq.cli.output import run, verbose_option

PROG: Final = "tambo"


COMMANDS: Final = {
    "serve": LazyCommand("tambomq.cli.serve", "serve", "Start everything on this machine."),
    "work": LazyCommand(
        "tambomq.cli.work", "work", "Run the jobs and workers that modules define."
    ),
    "rsmq": LazyCommand(
        "tambomq.cli.rsmq", "rsmq", "Inspect RSMQ queues, send, receive and delete messages."
    ),
    "chasqui": LazyCommand(
        "tambomq.cli.chasqui", "chasqui", "Inspect ChasquiMQ queues and manage their jobs."
    ),
    "gomq": LazyCommand(
        "tambomq.cli.brokers.gomq", "gomq", "Publish to GOMQ keys, subscribe and observe."
    ),
    "kqueue": LazyCommand(
        "tambomq.cli.brokers.kqueue",
        "kqueue",
        "Send messages to KqueueMsgQ queues and receive them.",
    ),
    "pipeline": LazyCommand(
        "tambomq.cli.pipeline",
        "pipeline",
        "Archive, query, repair and move the messages of queues.",
    ),
    "demo": LazyCommand("tambomq.cli.demo", "demo", "Send some traffic through every protocol."),
}


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing there.",
)
@click.version_option(package_name="tambomq", prog_name=PROG)
@verbose_option
def tambo() -> None:
    """Message queues on one Redis or Valkey, in protocols that others speak too.

    `tambo serve` starts a server of its own and prints its address.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run ``tambo`` and end the process with its exit code."""
    sys.exit(run(tambo, PROG, args))
