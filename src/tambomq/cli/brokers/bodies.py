"""The bodies that ``gomq publish`` and ``kqueue produce`` read and send, in batches.

Lines of standard input are sent as soon as they are read, so that a pipe may stay open for days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, Final, NamedTuple

import click

from tambomq.cli.input import Tick, progress, size_of, standard_input
from tambomq.cli.output import Command
from tambomq.errors import BrokerError, TamboError

READ_BYTES: Final = 256 * 1024
# Every server accepts such a batch: the lowest limit that can be configured is 64 KiB.
BATCH_BYTES: Final = 48 * 1024
# The overhead of a body on the wire, beside its key or queue.
_FRAME_BYTES: Final = 16

Send = Callable[[list[bytes]], object]


@dataclass(frozen=True, slots=True)
class BodyArguments:
    """The bodies of the command line."""

    texts: tuple[str, ...]
    file: BinaryIO | None

    @property
    def are_lines(self) -> bool:
        """Whether each line of standard input is one."""
        return self.file is None and self.texts in ((), ("-",))


class BodyLine(NamedTuple):
    """A body, and the line it was read from."""

    number: int
    body: bytes
    end: int
    """Bytes read up to the end of the line."""


def file_option(command: Command) -> Command:
    """Give *command* ``--file``."""
    return click.option(
        "--file", type=click.File("rb"), metavar="PATH", help="Send the whole of this file as one."
    )(command)


def given(texts: tuple[str, ...], file: BinaryIO | None) -> BodyArguments:
    """Return the source of the bodies. Raises `click.UsageError` if there are two."""
    if file is not None and texts:
        raise click.UsageError("give bodies in one place: as arguments, or with --file")
    return BodyArguments(texts, file)


def send_all(source: BodyArguments, send: Send, *, extra: int, verb: str) -> int:
    """Send all bodies of *source*, in batches; return how many.

    *extra*: overhead of each in bytes. An error or interrupt reports the last line that was sent,
    so that the rest can be sent later.
    """
    sent, done, batch = 0, 0, list[BodyLine]()
    try:
        with _progress(source) as tick:
            for batch in _batches(_lines(source), extra + _FRAME_BYTES):
                send([line.body for line in batch])
                sent, done = sent + len(batch), batch[-1].number
                tick(sent, batch[-1].end)
    except (TamboError, KeyboardInterrupt) as stop:
        if not sent:
            raise
        so_far = f"{sent} {verb}" + (f", up to line {done}" if source.are_lines else "")
        if batch[-1].number > done:
            so_far += f"; the next {len(batch)} may have been"
        if isinstance(stop, KeyboardInterrupt):
            click.echo(so_far, err=True)
            raise
        raise BrokerError(f"{stop}; {so_far}") from stop
    return sent


def _lines(source: BodyArguments) -> Iterator[list[BodyLine]]:
    """Yield the lines that can be sent now, again and again."""
    if source.are_lines:
        yield from _lines_of(standard_input())
    elif source.file is not None:
        yield [BodyLine(1, source.file.read(), 0)]
    else:
        # Arguments that are not UTF-8 arrive with surrogates; encode them back to the same bytes.
        stored = [text.encode("utf-8", "surrogateescape") for text in source.texts]
        yield [BodyLine(number, body, 0) for number, body in enumerate(stored, 1)]


def _lines_of(stream: BufferedReader) -> Iterator[list[BodyLine]]:
    number, end, rest = 0, 0, bytearray()
    while True:
        chunk = stream.read1(READ_BYTES)
        head, newline, tail = chunk.rpartition(b"\n")
        if chunk and not newline:
            rest += chunk
            continue
        found: list[BodyLine] = []
        rest += head
        for body in bytes(rest).split(b"\n"):
            number, end = number + 1, end + len(body) + 1
            if body:
                found.append(BodyLine(number, body, end))
        yield found
        if not chunk:
            return
        rest = bytearray(tail)


def _batches(available: Iterable[list[BodyLine]], extra: int) -> Iterator[list[BodyLine]]:
    for lines in available:
        batch, size = list[BodyLine](), 0
        for line in lines:
            cost = len(line.body) + extra
            if batch and size + cost > BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(line)
            size += cost
        if batch:
            yield batch


def _progress(source: BodyArguments) -> AbstractContextManager[Tick]:
    lines = source.are_lines
    total = size_of(standard_input()) if lines else None
    return progress("sending", "messages", total, shown=lines)
