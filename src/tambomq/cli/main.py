"""The command ``tambo``: what there is to type. A subcommand is imported when it is run."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from tambomq.cli.lazy import LazyCommand, LazyGroup
from tambomq.cli.output import run, verbose_option

PROG: Final = "tambo"
COMPLETE: Final = "_TAMBO_COMPLETE"
"""The variable that a shell sets to complete what is typed."""


COMMANDS: Final = {
    "serve": LazyCommand("tambomq.cli.serve", "serve", "Start everything on this machine."),
    "console": LazyCommand(
        "tambomq.cli.console", "console", "Serve the console for a server that runs elsewhere."
    ),
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
    "access": LazyCommand(
        "tambomq.cli.access", "access", "Manage users, their rights and their tokens."
    ),
    "acl": LazyCommand(
        "tambomq.cli.acl", "acl", "Show the rights that clients need in Redis and Valkey."
    ),
    "explain": LazyCommand(
        "tambomq.cli.explain", "explain", "Explain why a message is not running."
    ),
    "top": LazyCommand("tambomq.cli.top", "top", "Show all queues of all protocols, live."),
    "doctor": LazyCommand(
        "tambomq.cli.doctor", "doctor", "Check server, machine and installation."
    ),
    "backup": LazyCommand(
        "tambomq.cli.backup.backup", "backup", "Back up the server's data while it runs."
    ),
    "restore": LazyCommand(
        "tambomq.cli.backup.restore", "restore", "Restore a backup of the server's data."
    ),
    "demo": LazyCommand("tambomq.cli.demo", "demo", "Send some traffic through every protocol."),
    "completion": LazyCommand(
        "tambomq.cli.completion", "completion", "Print what a shell needs to complete commands."
    ),
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
    if COMPLETE in os.environ:
        import_module("tambomq.cli.completion").install()
    sys.exit(run(tambo, PROG, args))
