"""The command ``rsmqctl``, with the options, words and exit codes its users' scripts know.

A script reads its output, so each word here is a promise; ``tests/vectors/rsmqctl.txt`` holds them.
Whatever is new belongs to ``tambo rsmq``.
"""

from __future__ import annotations

import base64
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from tambomq.cli.output import CliState, emit, run, visible
from tambomq.cli.rsmq.client import name_option, ns_option, open_client, url_option
from tambomq.errors import (
    InvalidFormat,
    InvalidValue,
    MessageTooLong,
    QueueExists,
    QueueNotFound,
    TamboError,
)
from tambomq.rsmq import Message, Rsmq
from tambomq.rsmq.model import LARGEST_MAXSIZE

PROG: Final = "rsmqctl"
# One less than the library's own default, and what there is in existing queues.
DEFAULT_MAXSIZE: Final = 65535


class Failed(click.ClickException):
    """One line on stderr, in the words of ``rsmqctl``, and exit 1."""

    def __init__(self, message: str) -> None:
        super().__init__(visible(message).replace("\n", "\\n"))
        state = click.get_current_context().find_object(CliState)
        self.verbose = state is not None and state.verbose

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line, after the traceback of its cause if that is wanted."""
        if self.verbose and self.__cause__ is not None:
            traceback.print_exception(self.__cause__)
        click.echo(self.message, file=file, err=True)


@contextmanager
def client_for(queue: str, failure: str = "") -> Iterator[Rsmq]:
    """Yield a client; what it raises becomes a line that scripts know.

    *failure* begins the line about a number or a body that cannot be.
    """
    client = open_client()
    try:
        yield client
    except QueueExists as error:
        raise Failed(f"Queue already exists: {queue}") from error
    except (QueueNotFound, InvalidFormat) as error:
        raise Failed(f"No such queue: {queue}") from error
    except (InvalidValue, MessageTooLong) as error:
        raise Failed(f"{failure}: {error}") from error


@click.group()
@url_option("-r", "--redis-url", env=["REDIS_URL"])
@ns_option
@click.option("-v", "--verbose", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def rsmqctl(ctx: click.Context, *, verbose: bool) -> None:
    """Manage RSMQ queues and messages.

    For tables, batches, peeking and statistics see `tambo rsmq --help`.
    """
    ctx.ensure_object(CliState).verbose = verbose


@rsmqctl.group()
def queue() -> None:
    """Manage RSMQ queues."""


@queue.command("list")
def list_queues() -> None:
    """List all queues on the server."""
    emit(json.dumps(open_client().list_queues()))


@queue.command()
@name_option
def describe(name: str) -> None:
    """Describe the attributes of a queue."""
    with client_for(name) as client:
        found = client.get_queue_attributes(name)
    # The tool that this replaces knows no bounds.
    fields = [field for field in found.__struct_fields__ if field != "bounds"]
    emit(json.dumps({field: getattr(found, field) for field in fields}))


@queue.command()
@name_option
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    default=30,
    metavar="SECONDS",
    help="How long a received message stays hidden. [30]",
)
@click.option(
    "-d", "--delay", default=0, metavar="SECONDS", help="How long a sent message stays hidden. [0]"
)
@click.option(
    "-m",
    "--maxsize",
    default=DEFAULT_MAXSIZE,
    metavar="BYTES",
    help=f"The longest message, from 1024 on, at most 65536; -1 for no limit. [{DEFAULT_MAXSIZE}]",
)
def create(name: str, vt: int, delay: int, maxsize: int) -> None:
    """Create a new queue."""
    failure = f"Failed to create queue: {name}"
    with client_for(name, failure) as client:
        try:
            # Scripts ask for more than there is; they get the most there is, and no complaint.
            allowed = min(maxsize, LARGEST_MAXSIZE)
            client.create_queue(name, vt=vt, delay=delay, maxsize=allowed)
        except InvalidFormat as error:
            raise Failed(failure) from error


@queue.command("delete")
@name_option
def delete_queue(name: str) -> None:
    """Delete a queue and all its messages, without asking."""
    with client_for(name) as client:
        client.delete_queue(name)


@rsmqctl.group()
def message() -> None:
    """Manage RSMQ messages."""


@message.command()
@name_option
@click.option("-m", "--message", "body", required=True, metavar="TEXT", help="The body.")
@click.option(
    "-d", "--delay", type=int, metavar="SECONDS", help="How long it stays hidden. [the queue's own]"
)
def send(name: str, body: str, delay: int | None) -> None:
    """Publish a message to the queue and print its id."""
    with client_for(name, "Failed to send message") as client:
        # Arguments that are not UTF-8 arrive with surrogates; encode them back to the same bytes.
        emit(client.send_message(name, body.encode("utf-8", "surrogateescape"), delay=delay))


@message.command()
@name_option
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    type=int,
    metavar="SECONDS",
    help="How long it stays hidden. [the queue's own]",
)
def receive(name: str, vt: int | None) -> None:
    r"""Fetch the next message from the queue and mark it hidden.

    A body that is not UTF-8 is shown with escapes such as \xff; a fifth field, "base64", then
    holds its exact bytes. `tambo rsmq message receive --base64` prints every body so.
    """
    with client_for(name, "Failed to receive a message") as client:
        _print_message(name, client.receive_message(name, vt=vt))


@message.command()
@name_option
def pop(name: str) -> None:
    """Fetch the next message from the queue and delete it.

    It is printed as `receive` does.
    """
    with client_for(name) as client:
        _print_message(name, client.pop_message(name))


@message.command("delete")
@name_option
@click.option("-i", "--message-id", "id", required=True, metavar="ID", help="The message.")
def delete_message(name: str, id: str) -> None:
    """Delete a message."""
    failure = f"Failed to delete message ID: {id}"
    with client_for(name, failure) as client:
        _must(failure, client, name, lambda: client.delete_message(name, id))


@message.command()
@name_option
@click.option("-i", "--message-id", "id", required=True, metavar="ID", help="The message.")
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    type=int,
    required=True,
    metavar="SECONDS",
    help="How long it stays hidden from now on.",
)
def visibility(name: str, id: str, vt: int) -> None:
    """Change when a message becomes visible."""
    failure = f"Failed to change visibility timeout for message ID: {id}"
    with client_for(name, failure) as client:
        _must(failure, client, name, lambda: client.change_message_visibility(name, id, vt))
    emit(f"Message ID: {id} visibility timeout set to {vt}s")


def main(args: Sequence[str] | None = None) -> None:
    """Run ``rsmqctl`` and end the process with its exit code."""
    sys.exit(run(rsmqctl, PROG, args))


def _print_message(queue: str, found: Message | None) -> None:
    if found is None:
        emit(f"No messages on queue: {queue}")
        return
    shown: dict[str, object] = {
        "id": found.id,
        "message": found.body.decode("utf-8", "backslashreplace"),
        "rc": found.rc,
        "ts": found.fr,
    }
    try:
        found.body.decode("utf-8")
    except UnicodeDecodeError:
        shown["base64"] = base64.b64encode(found.body).decode()
    emit(json.dumps(shown))


def _must(failure: str, client: Rsmq, queue: str, act: Callable[[], bool]) -> None:
    """Do *act* on a message; raise `Failed` if it is not there."""
    cause: TamboError | None = None
    try:
        if act():
            return
    except InvalidFormat as error:
        # An id that no message can have. A missing queue would have been reported first.
        client.get_queue_attributes(queue)
        cause = error
    raise Failed(failure) from cause
