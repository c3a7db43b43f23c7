"""Many jobs at once for ``chasqui add``: JSON lines, copies, batches and their progress bar."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import click

from tambomq.chasqui.ops.add import CHUNK
from tambomq.cli.chasqui.client import InteractiveQueue, flags_in_faults, jobs
from tambomq.cli.input import progress, standard_input
from tambomq.errors import (
    BatchIncomplete,
    LocalProtocolError,
    NotDurable,
    QueueError,
    ReplyLost,
    TamboError,
)

# A batch of at most CHUNK jobs without ids or delays is added whole or not at all.
BATCH_JOBS: Final = CHUNK
BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job, and the line it was read from."""

    number: int
    job: dict[str, Any]
    end: int
    """Bytes read up to the end of the line, or the number of copies made."""


class NotAJob(ValueError):
    """A line is not JSON, or does not describe a job."""


def read_lines(name: str | None, options: dict[str, Any]) -> Iterator[JobLine]:
    """Yield a job for each line of standard input that is not empty.

    With *name* a line is the data of a job; without, an object with ``name``, ``data`` and options
    of its own, which win over *options*.
    """
    end = 0
    for number, raw in enumerate(standard_input(), 1):
        end += len(raw)
        if raw.strip():
            yield JobLine(number, options | _job(number, raw, name), end)


def copies(job: dict[str, Any], count: int) -> Iterator[JobLine]:
    """Yield the same job again and again."""
    return (JobLine(number, job, number) for number in range(1, count + 1))


def add_all(client: InteractiveQueue, lines: Iterable[JobLine], total: int | None) -> int:
    """Add jobs in batches; return how many.

    An error or interrupt reports the last line that was added, so that the rest can be added
    later. *total* is the size of the input, if that is known.
    """
    added, done, batch = 0, 0, list[JobLine]()
    try:
        with progress("adding", "jobs", total) as tick, flags_in_faults():
            for batch in _batches(lines):
                client.add_bulk([line.job for line in batch])
                added, done = added + len(batch), batch[-1].number
                tick(added, batch[-1].end)
    except (TamboError, NotAJob, KeyboardInterrupt) as stop:
        unsure = batch if batch and batch[-1].number > done else []
        so_far = f"{jobs(added)} added, up to line {done}{_maybe(stop, unsure)}"
        if isinstance(stop, KeyboardInterrupt):
            click.echo(so_far, err=True)
            raise
        raise QueueError(
            client.name, f"{_line_prefix(client, stop, unsure)}{stop}; {so_far}"
        ) from stop
    return added


def _job(number: int, raw: bytes, name: str | None) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError as error:
        raise NotAJob(f"line {number} is not JSON: {error}") from error
    if name is not None:
        return {"name": name, "data": value}
    if not isinstance(value, dict) or "name" not in value:
        raise NotAJob(
            f'line {number} is no job: expected {{"name": …, "data": …}}; '
            "where all have one name, give it after the queue's"
        )
    return {"data": None, **value}


def _batches(lines: Iterable[JobLine]) -> Iterator[list[JobLine]]:
    batch, start = list[JobLine](), 0
    for line in lines:
        batch.append(line)
        if len(batch) == BATCH_JOBS or line.end - start >= BATCH_BYTES:
            yield batch
            batch, start = [], line.end
    if batch:
        yield batch


def _line_prefix(client: InteractiveQueue, stop: Exception, batch: list[JobLine]) -> str:
    if isinstance(stop, LocalProtocolError) and batch:
        return f"line {batch[client.wrong_among([line.job for line in batch])].number}: "
    return ""


def _maybe(stop: BaseException, batch: list[JobLine]) -> str:
    """Return what is known about the batch that was being added."""
    if isinstance(stop, BatchIncomplete):
        return f"; of the next {len(stop.ids)}, {len(stop.ids) - stop.ids.count(None)}"
    if isinstance(stop, NotDurable):
        return f"; the next {len(batch)} are stored, too"
    if batch and isinstance(stop, ReplyLost | KeyboardInterrupt):
        return f"; the next {len(batch)} may have been"
    return ""
