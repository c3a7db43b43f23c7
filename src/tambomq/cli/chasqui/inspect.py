"""``chasqui inspect``, ``watch``, ``counts``, ``queues``: job counts by state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from tambomq.chasqui.job import JobCounts
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import admin as admin_ops
from tambomq.cli.chasqui.client import (
    every_command,
    group_option,
    is_there,
    open_store,
    queue_argument,
    require_queue,
)
from tambomq.cli.chasqui.tables import emit_rows, rows_text
from tambomq.cli.journal_state import journal_fields, journal_rows
from tambomq.cli.output import NothingThere, emit, emit_json, example, explain
from tambomq.cli.times import utc
from tambomq.clock import now_ms
from tambomq.errors import QueueNotFound, StoreUnavailable, TamboError
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.store.call import Call
from tambomq.text import spelled_out

INTERVAL_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """A queue at one moment."""

    depth: int
    """Entries of the stream: jobs that wait, and jobs that run."""
    counts: JobCounts

    @property
    def fields(self) -> dict[str, object]:
        """The fields of the JSON output."""
        found = self.counts
        return {
            "stream_depth": self.depth,
            "pending": found.active,
            "dlq_depth": found.dead,
            "delayed_depth": found.delayed,
            "oldest_delayed_lag_ms": found.oldest_delayed_lag_ms,
            "repeatable_count": found.repeatable,
            "group_created": found.has_group,
            "paused": found.paused,
        }


@click.command(epilog=example("chasqui inspect emails"))
@queue_argument
@group_option
@every_command
def inspect(queue: str, *, group: str, as_json: bool) -> None:
    """Show what is in a queue.

    `pending` are the jobs that workers have read and not settled; they count for `stream depth`
    too. Exit 3 when there is no such queue.
    """
    require_queue(queue)
    snapshot = _look(queue, group)
    journal = open_store().run(journal_ops.state(JournalKeys("chasqui", queue)))
    if as_json:
        emit_json({"queue": queue, "group": group, **snapshot.fields, **journal_fields(journal)})
    else:
        emit_rows(_header(queue, group), [*_rows(snapshot), *journal_rows(journal)])


@click.command(epilog=example("chasqui watch emails --interval-ms 500"))
@queue_argument
@click.option(
    "--interval-ms",
    default=INTERVAL_MS,
    type=click.IntRange(min=1),
    metavar="MS",
    help=f"Time between two refreshes. [{INTERVAL_MS}]",
)
@group_option
@every_command
def watch(queue: str, *, interval_ms: int, group: str, as_json: bool) -> None:
    """Show what is in a queue, refreshed until Ctrl-C.

    From the second refresh on, the last column shows what has changed. With --json each one is
    a line. If the server goes away, it reconnects.
    """
    before, now = None, _look(queue, group)
    try:
        while True:
            _show_look(queue, group, interval_ms, before, now, as_json=as_json)
            time.sleep(interval_ms / 1000)
            before, now = now, _look_again(queue, group)
    except KeyboardInterrupt:
        return


@click.command(epilog=example("chasqui queues", "chasqui queues --json"))
@group_option
@every_command
def queues(*, group: str, as_json: bool) -> None:
    """List all queues of the server with what is in them.

    A queue that cannot be read is listed with the reason. Exit 3 when there are none.
    """
    found = open_store().follow(admin_ops.queues())
    _show_counts(found, group, as_json=as_json)
    if not found:
        raise NothingThere("" if as_json else "there are no queues")


@click.command(epilog=example("chasqui counts emails reports"))
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
@group_option
@every_command
def counts(names: Sequence[str], *, group: str, as_json: bool) -> None:
    """Count jobs by state: waiting, active, delayed, dead.

    Exit 3 when there is no queue of one of the names.
    """
    missing = [name for name in names if not is_there(name)]
    _show_counts(names, group, missing, as_json=as_json)
    if missing:
        raise QueueNotFound(missing[0])


def _look(queue: str, group: str) -> QueueSnapshot:
    store, keys = open_store(), Keys(queue)
    found = store.follow(admin_ops.counts(keys, group))
    # Jobs that were trimmed while they ran are pending and no longer in the stream.
    depth = found.waiting + found.active
    if not found.waiting and found.active:
        depth = store.run(Call("XLEN", (keys.stream,), (), int, repeatable=True))
    return QueueSnapshot(depth, found)


def _look_again(queue: str, group: str) -> QueueSnapshot:
    """Take a snapshot; retry until the server can be reached."""
    while True:
        try:
            return _look(queue, group)
        except StoreUnavailable as error:
            click.echo(f"{explain(error)}; still trying", err=True)


def _header(queue: str, group: str) -> tuple[str, str]:
    return f"queue: {queue}", f"group: {group}"


def _rows(snapshot: QueueSnapshot) -> list[tuple[str, object]]:
    found = snapshot.counts
    return [
        ("stream depth", snapshot.depth),
        ("pending", found.active if found.has_group else f"{found.active} (group not created)"),
        ("DLQ depth", found.dead),
        ("delayed depth", found.delayed),
        ("oldest delayed lag (ms)", found.oldest_delayed_lag_ms),
        ("repeatable count", found.repeatable),
    ]


def _show_look(
    queue: str,
    group: str,
    interval_ms: int,
    before: QueueSnapshot | None,
    now: QueueSnapshot,
    *,
    as_json: bool,
) -> None:
    if as_json:
        emit_json({"time": utc(now_ms()), "queue": queue, "group": group, **now.fields})
        return
    header: tuple[str, ...] = _header(queue, group)
    rows: list[tuple[object, ...]] = list(_rows(now))
    if before is not None:
        header = (*header, "Δ")
        changes = {
            "stream depth": now.depth - before.depth,
            "DLQ depth": now.counts.dead - before.counts.dead,
        }
        rows = [(*row, _change(changes.get(str(row[0])))) for row in rows]
    # Drawn before the screen is cleared, so that it does not flicker.
    table = rows_text(header, rows)
    click.clear()
    emit(f"chasqui watch {queue}  refresh={interval_ms}ms  {utc(now_ms())}  (Ctrl+C to exit)")
    click.echo(table)


def _change(by: int | None) -> str:
    if by is None:
        return "-"
    return f"+{by}" if by > 0 else str(by)


def _show_counts(
    names: Sequence[str], group: str, missing: Sequence[str] = (), *, as_json: bool
) -> None:
    found = {
        name: QueueNotFound(name) if name in missing else _counted(name, group) for name in names
    }
    if as_json:
        emit_json([_listed(name, counts) for name, counts in found.items()])
        return
    good = {name: counts for name, counts in found.items() if isinstance(counts, JobCounts)}
    if good:
        emit_rows(
            ("queue", "waiting", "active", "delayed", "dead", "repeatable", "paused"),
            [
                (
                    name,
                    counts.waiting,
                    counts.active,
                    counts.delayed,
                    counts.dead,
                    counts.repeatable,
                    "yes" if counts.paused else "no",
                )
                for name, counts in good.items()
            ],
        )
    for name, counts in found.items():
        if isinstance(counts, TamboError) and name not in missing:
            emit(spelled_out(f"{name}: {counts}"))


def _counted(name: str, group: str) -> JobCounts | TamboError:
    try:
        return open_store().follow(admin_ops.counts(Keys(name), group))
    except StoreUnavailable:
        raise
    except TamboError as error:
        return error


def _listed(name: str, counts: JobCounts | TamboError) -> dict[str, object]:
    if isinstance(counts, TamboError):
        return {"queue": name, "error": str(counts)}
    return {
        "queue": name,
        **{field: getattr(counts, field) for field in counts.__struct_fields__},
    }
