"""Options that several commands of ``tambo rsmq`` share, and the question before a loss."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from tambomq.cli.durations import METAVAR, whole_seconds, whole_seconds_or_unlimited
from tambomq.cli.output import Command, json_option, verbose_option
from tambomq.cli.rsmq.client import ns_option, url_option
from tambomq.rsmq.model import OVERFLOWS


def every_command(command: Command) -> Command:
    """Add the options of all commands: ``--json``, ``--redis-url``, ``--ns``, ``--verbose``."""
    for option in (verbose_option, ns_option, url_option("--redis-url"), json_option):
        command = option(command)
    return command


def settings_options(command: Command) -> Command:
    """Give *command* the settings of a queue: ``vt``, ``delay``, ``maxsize``."""
    for option in (
        click.option(
            "-m",
            "--maxsize",
            type=int,
            metavar="BYTES",
            help="The longest message, 1024 to 65536, or -1 for no limit.",
        ),
        click.option(
            "-d",
            "--delay",
            type=whole_seconds,
            metavar=METAVAR,
            help="How long a sent message stays hidden: 30 (seconds), 5m.",
        ),
        click.option(
            "-t",
            "--visibility-timeout",
            "vt",
            type=whole_seconds,
            metavar=METAVAR,
            help="How long a received message stays hidden: 30 (seconds), 5m.",
        ),
    ):
        command = option(command)
    return command


def bounds_options(command: Command) -> Command:
    """Give *command* the bounds of a queue, as `Rsmq.set_queue_bounds` takes them."""
    for option in (
        click.option(
            "--dead-queue",
            "dead",
            metavar="QUEUE",
            help="Where messages that do not fit, or have expired, go. Default: the queue's -dead.",
        ),
        click.option(
            "--overflow",
            type=click.Choice(OVERFLOWS),
            help="What becomes of a message that does not fit. Default: refuse.",
        ),
        click.option(
            "--ttl",
            "message_ttl_s",
            type=whole_seconds_or_unlimited,
            metavar=METAVAR,
            help="How long a message may wait to be received: 30 (seconds), 5m; -1 for no TTL.",
        ),
        click.option(
            "--max-bytes",
            type=int,
            metavar="BYTES",
            help="The most bytes in the bodies of all messages; -1 for no bound.",
        ),
        click.option(
            "--max-messages",
            type=int,
            metavar="COUNT",
            help="The most messages, hidden and delayed ones too; -1 for no bound.",
        ),
    ):
        command = option(command)
    return command


def base64_option(what: str) -> Callable[[Command], Command]:
    """Make a decorator that gives a command ``--base64``, which arrives as ``as_base64``."""
    return click.option("--base64", "as_base64", is_flag=True, help=what)


def confirm(question: str, *, yes: bool) -> None:
    """Return if the answer is yes; without a terminal it is an error."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():  # `None`: closed before we started
        raise click.UsageError("cannot ask for confirmation without a terminal: give --yes")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was done")
