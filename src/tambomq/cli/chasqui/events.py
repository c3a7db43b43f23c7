"""``chasqui events`` and ``result``: the events of a queue, and the result of a job."""

from __future__ import annotations

import re
import time
from typing import Final

import click

from tambomq.chasqui.job import QueueEvent
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import events as event_ops
from tambomq.cli.chasqui.client import (
    InteractiveQueue,
    every_command,
    open_queue,
    open_store,
    queue_argument,
)
from tambomq.cli.chasqui.values import with_text_keys
from tambomq.cli.durations import METAVAR, seconds
from tambomq.cli.output import NothingThere, emit, emit_json, example, explain
from tambomq.cli.times import utc
from tambomq.errors import StoreRefused, StoreUnavailable

COUNT: Final = 100
BLOCK_MS: Final = 5000
RETRY_MS: Final = 200
VALUE_LENGTH: Final = 80
_PLACE: Final = re.compile(r"\$|\d{1,20}(-\d{1,20})?")


@click.command(
    epilog=example(
        "chasqui events emails",
        "chasqui events emails --from 0 --json | jq 'select(.event == \"dlq\")'",
    )
)
@queue_argument
@click.option(
    "--from",
    "after",
    default="$",
    metavar="ID",
    help="Begin after this one; $ is now, 0 the oldest that is kept. [$]",
)
@every_command
def events(queue: str, *, after: str, as_json: bool) -> None:
    """Print the events of a queue, until Ctrl-C.

    Each event is a line. If the server goes away, it reconnects and misses no event.
    """
    if not _PLACE.fullmatch(after):
        raise click.UsageError(f"--from {after}: expected $, 0, or the id of an event")
    keys = Keys(queue)
    try:
        while True:
            page, after = _next_page(keys, after)
            for event in page:
                if as_json:
                    emit_json(_object(event))
                else:
                    emit(_line(event))
    except KeyboardInterrupt:
        return


@click.command(
    epilog=example(
        "chasqui result reports 01J9ZQ6T2K", "chasqui result reports 01J9ZQ6T2K --wait 30"
    )
)
@queue_argument
@click.argument("id")
@click.option(
    "--wait",
    type=seconds,
    default="0",
    metavar=METAVAR,
    help="Wait for the job to be done, at most for so long: 30 (seconds), 5m. [0]",
)
@every_command
def result(queue: str, id: str, *, wait: float, as_json: bool) -> None:
    """Print the result of a job's handler, as JSON.

    A result exists if the worker stores results, until it expires. Exit 3 when there is none.
    """
    client = open_queue(queue)
    value = _result(client, id, wait)
    if as_json:
        emit_json({"queue": queue, "id": id, "result": with_text_keys(value)})
    elif value is not None:
        emit_json(with_text_keys(value))
    if value is None:
        raise NothingThere("" if as_json else _why_not(client, id))


def _next_page(keys: Keys, after: str) -> tuple[list[QueueEvent], str]:
    store = open_store()
    try:
        # Resolve it once, or events between two reads would be lost.
        after = store.run(event_ops.last_id(keys)) if after == "$" else after
        page = store.run(event_ops.read(keys, after, COUNT, BLOCK_MS))
    except (StoreUnavailable, StoreRefused) as error:
        click.echo(f"xread error: {explain(error)}; retrying in {RETRY_MS}ms", err=True)
        time.sleep(RETRY_MS / 1000)
        return [], after
    return page, page[-1].event_id if page else after


def _line(event: QueueEvent) -> str:
    others = {key: value for key, value in event.fields.items() if key != "ts"}
    words = [
        utc(_time_ms(event)),
        event.event_id,
        event.name or "-",
        f"id={event.job_id or '-'}",
        f"name={event.job_name or '-'}",
        *(f"{key}={_cut(str(value))}" for key, value in sorted(others.items())),
    ]
    return " ".join(words).replace("\n", "\\n").replace("\t", "\\t")


def _object(event: QueueEvent) -> dict[str, object]:
    return {
        "time": utc(_time_ms(event)),
        "event_id": event.event_id,
        "event": event.name,
        "job_id": event.job_id,
        "job_name": event.job_name,
        **{key: value for key, value in event.fields.items() if key not in _OURS},
    }


_OURS: Final = frozenset(("time", "event_id", "event", "job_id", "job_name"))


def _time_ms(event: QueueEvent) -> int:
    recorded_ms = event.fields.get("ts")
    return recorded_ms if isinstance(recorded_ms, int) else int(event.event_id.partition("-")[0])


def _cut(value: str) -> str:
    return value if len(value) <= VALUE_LENGTH else value[:VALUE_LENGTH] + "..."


def _result(client: InteractiveQueue, id: str, wait_s: float) -> object:
    if wait_s <= 0:
        return client.get_job_result(id)
    try:
        return client.wait_for_result(id, timeout=wait_s)
    except TimeoutError:
        return None


def _why_not(client: InteractiveQueue, id: str) -> str:
    percent = client.get_progress(id)
    done = "" if percent is None else f"; the job reported {percent} %"
    return f"no result of job {id} on the queue {client.name}{done}"
