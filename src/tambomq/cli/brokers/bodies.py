"""Where the bodies come from that ``gomq publish`` and ``kqueue produce`` send, in batches.

Lines of standard input go out as soon as they are there, so that a pipe may stay open for days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedReader
from typing import BinaryIO, Final, NamedTuple

import click

from tambomq.cli.long_input import Tick, progress, size_of, standard_input
from tambomq.cli.output import Command
from tambomq.errors import BrokerError, TamboError

READ_BYTES: Final = 256 * 1024
# Every server takes such a batch: none can be told to take less than 64 KiB at once.
BATCH_BYTES: Final = 48 * 1024
# What a body may cost beside itself and its key or queue.
_FRAME_BYTES: Final = 16

Send = Callable[[list[bytes]], object]


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says about bodies."""

    texts: tuple[str, ...]
    file: BinaryIO | None

    @property
    def are_lines(self) -> bool:
        """Whether each line of standard input is one."""
        return self.file is None and self.texts in ((), ("-",))


class Line(NamedTuple):
    """A body, and where it came from."""

    number: int
    body: bytes
    end: int
    """How many bytes had been read with it."""


def file_option(command: Command) -> Command:
    """Give *command* ``--file``."""
    return click.option(
        "--file", type=click.File("rb"), metavar="PATH", help="Send the whole of this file as one."
    )(command)


def given(texts: tuple[str, ...], file: BinaryIO | None) -> Given:
    """Return where the bodies are. Raises `click.UsageError` if that is two places."""
    if file is not None and texts:
        raise click.UsageError("give bodies in one place: as arguments, or with --file")
    return Given(texts, file)


def send_all(source: Given, send: Send, *, extra: int, verb: str) -> int:
    """Send all bodies of *source*, in batches; return how many.

    *extra*: bytes that each costs beside itself. Whatever stops it, it is told up to which line all
    is sent, so that the rest can be sent later.
    """
    sent, done, batch = 0, 0, list[Line]()
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


def _lines(source: Given) -> Iterator[list[Line]]:
    """Yield what can go out now, again and again."""
    if source.are_lines:
        yield from _lines_of(standard_input())
    elif source.file is not None:
        yield [Line(1, source.file.read(), 0)]
    else:
        # Bytes of the command line that are no text arrive as surrogates; they leave as they came.
        stored = [text.encode("utf-8", "surrogateescape") for text in source.texts]
        yield [Line(number, body, 0) for number, body in enumerate(stored, 1)]


def _lines_of(stream: BufferedReader) -> Iterator[list[Line]]:
    number, end, rest = 0, 0, bytearray()
    while True:
        chunk = stream.read1(READ_BYTES)
        head, newline, tail = chunk.rpartition(b"\n")
        if chunk and not newline:
            rest += chunk
            continue
        found: list[Line] = []
        rest += head
        for body in bytes(rest).split(b"\n"):
            number, end = number + 1, end + len(body) + 1
            if body:
                found.append(Line(number, body, end))
        yield found
        if not chunk:
            return
        rest = bytearray(tail)


def _batches(available: Iterable[list[Line]], extra: int) -> Iterator[list[Line]]:
    for lines in available:
        batch, size = list[Line](), 0
        for line in lines:
            cost = len(line.body) + extra
            if batch and size + cost > BATCH_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(line)
            size += cost
        if batch:
            yield batch


def _progress(source: Given) -> AbstractContextManager[Tick]:
    lines = source.are_lines
    total = size_of(standard_input()) if lines else None
    return progress("sending", "messages", total, shown=lines)
