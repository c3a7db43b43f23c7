"""The bodies that ``tambo rsmq message send`` reads, and the batches of lines it sends."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import click

from tambomq.cli.input import progress, size_of, standard_input
from tambomq.cli.output import Command
from tambomq.cli.rsmq.options import base64_option
from tambomq.errors import MessageTooLong, NotDurable, QueueError, ReplyLost, TamboError
from tambomq.rsmq import Rsmq
from tambomq.rsmq.ops.messages import CHUNK

# A batch of at most CHUNK messages is sent whole or not at all.
BATCH_MESSAGES: Final = CHUNK
BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class SendOptions:
    """The options of ``send`` about bodies."""

    texts: tuple[str, ...]
    file: BinaryIO | None
    dash: str | None
    lines: bool
    as_base64: bool

    @property
    def stream(self) -> BinaryIO | None:
        """What to read: a file, or standard input; `None` when the bodies stand in ``-m``."""
        if self.file is not None or self.texts:
            return self.file
        return standard_input() if self.dash or self.lines else None


def body_options(command: Command) -> Command:
    """Give *command* its options for bodies; they arrive as the fields of `SendOptions`."""
    for option in (
        click.argument("dash", required=False, type=click.Choice(["-"]), metavar="[-]"),
        base64_option("The bodies are given as base64."),
        click.option(
            "--lines", is_flag=True, help="One message for each line; empty ones are skipped."
        ),
        click.option(
            "--file", type=click.File("rb"), metavar="PATH", help="The body is in this file."
        ),
        click.option(
            "-m",
            "--message",
            "texts",
            multiple=True,
            metavar="TEXT",
            help="The body; repeat it to send several.",
        ),
    ):
        command = option(command)
    return command


def check(given: SendOptions) -> None:
    """Raise `click.UsageError` unless exactly one place holds the bodies."""
    places = [bool(given.texts), given.file is not None, given.dash is not None]
    if sum(places) > 1 or (given.lines and given.texts):
        raise click.UsageError("give bodies in one place: -m, --file or - (standard input)")
    if not any(places) and not given.lines:
        raise click.UsageError("no body: give it with -m TEXT, --file PATH, or - (standard input)")


def bodies(given: SendOptions) -> list[bytes]:
    """Return the bodies, unless they are lines."""
    # Arguments that are not UTF-8 arrive with surrogates; encode them back to the same bytes.
    stored = [text.encode("utf-8", "surrogateescape") for text in given.texts]
    if (stream := given.stream) is not None:
        stored.append(stream.read())
    if not given.as_base64:
        return stored
    try:
        return [decoded(body) for body in stored]
    except ValueError as error:
        raise click.UsageError(f"the body is not base64: {error}") from error


def send_lines(client: Rsmq, queue: str, given: SendOptions, *, delay: float | None) -> int:
    """Send each line, in batches; return how many messages that made.

    An error or interrupt reports the last line that was sent, so that the rest can be sent later.
    """
    sent, done, batch = 0, 0, list[MessageLine]()
    try:
        with progress("sending", "messages", size_of(given.stream)) as tick:
            for batch in _batches(_lines(given)):
                client.send_messages(queue, [line.body for line in batch], delay=delay)
                sent, done = sent + len(batch), batch[-1].number
                tick(sent, batch[-1].end)
    except (TamboError, NotBase64, KeyboardInterrupt) as stop:
        so_far = f"{sent} messages were sent, up to line {done}"
        if isinstance(stop, NotDurable):
            so_far += f"; the next {len(batch)} are stored, too"
        if isinstance(stop, ReplyLost | KeyboardInterrupt) and batch and batch[-1].number > done:
            so_far += f"; the next {len(batch)} may have been"
        if isinstance(stop, KeyboardInterrupt):
            click.echo(so_far, err=True)
            raise
        raise QueueError(queue, f"{_line_prefix(stop, batch)}{stop}; {so_far}") from stop
    return sent


def decoded(text: bytes) -> bytes:
    """Return what *text* is the base64 of; raise `ValueError` if it is none."""
    return base64.b64decode(text.strip(), validate=True)


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A line that is a message."""

    number: int
    body: bytes
    end: int
    """Bytes read up to the end of the line."""


class NotBase64(ValueError):
    """A line is not base64."""


def _lines(given: SendOptions) -> Iterator[MessageLine]:
    end = 0
    for number, raw in enumerate(given.stream or (), 1):
        end += len(raw)
        if not (body := raw.removesuffix(b"\n")):
            continue
        if given.as_base64:
            try:
                body = decoded(body)
            except ValueError as error:
                raise NotBase64(f"line {number} is not base64: {error}") from error
        yield MessageLine(number, body, end)


def _batches(lines: Iterator[MessageLine]) -> Iterator[list[MessageLine]]:
    batch, size = list[MessageLine](), 0
    for line in lines:
        batch.append(line)
        size += len(line.body)
        if len(batch) == BATCH_MESSAGES or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _line_prefix(error: Exception, batch: list[MessageLine]) -> str:
    if isinstance(error, MessageTooLong):
        longest = next(line for line in batch if len(line.body) == error.size)
        return f"line {longest.number}: "
    return ""
