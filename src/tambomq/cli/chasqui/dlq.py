"""``chasqui dlq``: show dead letters, and replay them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import click

from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.cli.chasqui.client import (
    confirm,
    every_command,
    flags_in_faults,
    open_queue,
    queue_argument,
    require_queue,
)
from tambomq.cli.chasqui.tables import emit_rows
from tambomq.cli.chasqui.values import with_text_keys
from tambomq.cli.output import NothingThere, emit, emit_json, example, yes_option
from tambomq.errors import RemoteProtocolError

PEEK_LIMIT: Final = 20
REPLAY_LIMIT: Final = 100
DETAIL_BYTES: Final = 60
NO_REASON: Final = "(unknown)"


@click.group()
def dlq() -> None:
    """Show dead letters, and replay them."""


@dlq.command(epilog=example("chasqui dlq peek emails --limit 50"))
@queue_argument
@click.option(
    "--limit",
    default=PEEK_LIMIT,
    type=click.IntRange(min=0),
    metavar="COUNT",
    help=f"At most this many. [{PEEK_LIMIT}]",
)
@click.option("--traceback", is_flag=True, help="Show the traceback of each handler.")
@every_command
def peek(queue: str, *, limit: int, traceback: bool, as_json: bool) -> None:
    """Show the oldest dead letters and how often each reason is among them.

    Details are shortened; --json has all of them, with tracebacks and payloads. Exit 3 when
    there is no such queue.
    """
    require_queue(queue)
    letters = open_queue(queue).peek_dlq(limit)
    reasons = Counter(letter.reason or NO_REASON for letter in letters)
    if as_json:
        entries = [_object(letter) for letter in letters]
        emit_json({"queue": queue, "entries": entries, "reasons": dict(sorted(reasons.items()))})
        return
    columns = (f"dlq peek: {queue}", "source_id", "name", "reason", "detail", "payload bytes")
    emit_rows(columns, [_row(letter) for letter in letters] or [("(empty)", *(None,) * 5)])
    emit("")
    emit_rows(("reason", "count"), sorted(reasons.items()) or [("(no entries)", 0)])
    if traceback:
        for letter in letters:
            below = (letter.traceback or "(no traceback)").splitlines()
            emit("\n".join(("", f"{letter.dlq_id}  {letter.error}", *below)))


@dlq.command(
    epilog=example(
        "chasqui dlq replay emails --limit 10",
        "chasqui dlq replay emails --reason retries_exhausted --name welcome --yes",
        "chasqui dlq replay emails --id 1777863108519-0 --yes",
    )
)
@queue_argument
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help=f"At most this many. [{REPLAY_LIMIT}, or one for each --id]",
)
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this one; repeatable.")
@click.option("--reason", "reasons", multiple=True, help="Only with this reason; repeatable.")
@click.option("--name", "names", multiple=True, help="Only jobs of this name; repeatable.")
@yes_option
@every_command
def replay(queue: str, *, limit: int | None, yes: bool, as_json: bool, **chosen: Any) -> None:
    """Replay dead letters, the oldest first, with all their attempts.

    Letters that are no jobs stay. Exit 3 when one that --id names was not there.
    """
    ids = set(chosen["ids"])
    max_count = limit if limit is not None else len(ids) or REPLAY_LIMIT
    confirm(f"Replay up to {max_count} DLQ entries on queue {queue}?", yes=yes)
    with flags_in_faults():
        done = open_queue(queue).replay_dlq(
            max_count, ids=ids or None, where=_filter(chosen["reasons"], chosen["names"])
        )
    if as_json:
        emit_json({"queue": queue, "replayed": done, "limit": max_count})
    else:
        emit(f"replayed {done} of {max_count} entries")
    if ids and done < min(max_count, len(ids)):
        left = "not all of these are in the DLQ, or they are no jobs: see `chasqui dlq peek`"
        raise NothingThere("" if as_json else left)


def _filter(reasons: Sequence[str], names: Sequence[str]) -> Any:
    if not reasons and not names:
        return None
    return lambda letter: (
        (not reasons or letter.reason in reasons) and (not names or letter.name in names)
    )


def _row(letter: DeadLetter) -> tuple[object, ...]:
    return (
        letter.dlq_id,
        letter.source_id,
        letter.name,
        letter.reason,
        _cut(letter.error),
        len(letter.payload),
    )


def _cut(detail: str | None) -> str | None:
    data = (detail or "").encode()
    if len(data) <= DETAIL_BYTES:
        return detail
    return data[:DETAIL_BYTES].decode(errors="ignore") + "…"


def _object(letter: DeadLetter) -> dict[str, object]:
    found: dict[str, object] = {
        "dlq_id": letter.dlq_id,
        "source_id": letter.source_id,
        "name": letter.name,
        "reason": letter.reason,
        "detail": letter.detail,
        "error_type": letter.error_type,
        "traceback": letter.traceback,
        "payload_bytes": len(letter.payload),
    }
    try:
        job = decode_envelope(letter.payload)
        data = with_text_keys(decode_payload(job.payload))
    except RemoteProtocolError:
        return {**found, "payload": letter.payload}
    return {**found, "job_id": job.id, "attempts_made": job.attempt, "data": data}
