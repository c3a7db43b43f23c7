"""``tambo rsmq queue``: make, look at, change and empty whole queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from msgspec import to_builtins

from tambomq.cli.journal_state import journal_fields, journal_rows
from tambomq.cli.output import NothingThere, emit, emit_json, emit_table, example, yes_option
from tambomq.cli.rsmq.client import look_at_journal, name_option, open_client
from tambomq.cli.rsmq.options import bounds_options, confirm, every_command, settings_options
from tambomq.cli.rsmq.render import bounds_rows, duration
from tambomq.cli.times import utc
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.journal.ops import State
from tambomq.rsmq import QueueAttributes, QueueStats, Rsmq
from tambomq.rsmq.model import UNLIMITED
from tambomq.text import spelled_out


@click.group()
def queue() -> None:
    """Make, look at, change and empty whole queues."""


@queue.command("list", epilog=example("tambo rsmq queue list"))
@every_command
def list_queues(*, as_json: bool) -> None:
    """List all queues with what is in them.

    A queue that cannot be read is listed with the reason.
    """
    client = open_client()
    found = {name: _look(client, name) for name in client.list_queues()}
    if as_json:
        emit_json([_listed(name, seen) for name, seen in found.items()])
    if not found:
        raise NothingThere("" if as_json else "there are no queues")
    if not as_json:
        _show_queues(found)


@queue.command(epilog=example("tambo rsmq queue describe -n orders"))
@name_option
@every_command
def describe(name: str, *, as_json: bool) -> None:
    """Show the settings and counts of a queue."""
    _show_attributes(name, open_client().get_queue_attributes(name), as_json=as_json)


@queue.command(epilog=example("tambo rsmq queue create -n orders -t 60"))
@name_option
@settings_options
@every_command
def create(name: str, *, as_json: bool, **settings: int | None) -> None:
    """Make a queue.

    Without options: received messages are hidden for 30 s, sent ones are visible at once, and a
    message has at most 65536 bytes.
    """
    client = open_client()
    client.create_queue(
        name, **{key: value for key, value in settings.items() if value is not None}
    )
    _show_attributes(name, client.get_queue_attributes(name), as_json=as_json)


@queue.command("set", epilog=example("tambo rsmq queue set -n orders -t 120"))
@name_option
@settings_options
@every_command
def set_settings(name: str, *, as_json: bool, **settings: int | None) -> None:
    """Change settings of a queue.

    Messages that are hidden already stay so for as long as they were to.
    """
    changed = open_client().set_queue_attributes(name, **settings)
    _show_attributes(name, changed, as_json=as_json)


@queue.command(epilog=example("tambo rsmq queue bound -n orders --max-messages 100000 --ttl 1d"))
@name_option
@bounds_options
@every_command
def bound(name: str, *, as_json: bool, **bounds: Any) -> None:
    """Change the bounds of a queue; without options, show them.

    A send that would exceed a bound is refused or, with --overflow dead-letter, goes to the
    dead-letter queue. So do messages that nobody receives within the TTL. Off by default.
    Other RSMQ libraries do not check bounds when they send.
    """
    client = open_client()
    given = {key: value for key, value in bounds.items() if value is not None}
    found = client.get_queue_attributes(name).bounds
    if given:
        found = client.set_queue_bounds(name, **given)
    if as_json:
        emit_json({"queue": name, **to_builtins(found)})
    else:
        emit_table(("queue", name), bounds_rows(found))


@queue.command(epilog=example("tambo rsmq queue sweep -n orders"))
@name_option
@every_command
def sweep(name: str, *, as_json: bool) -> None:
    """Move expired messages of a queue to its dead-letter queue.

    Consumers and `tambo serve` do so too.
    """
    journal = (name,) if look_at_journal(name) else ()
    expired = open_client(journal=journal).sweep_expired(name)
    if as_json:
        emit_json({"queue": name, "expired": expired})
    else:
        emit(f"dead-lettered {_messages(expired)} of the queue {name}")


@queue.command(epilog=example("tambo rsmq queue delete -n orders --yes"))
@name_option
@yes_option
@every_command
def delete(name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a queue and all its messages."""
    client = open_client()
    if not yes:
        count = client.get_queue_attributes(name).msgs
        confirm(f"Delete the queue {name} and its {_messages(count)}?", yes=yes)
    client.delete_queue(name)
    if as_json:
        emit_json({"queue": name, "deleted": True})
    else:
        emit(f"deleted the queue {name}")


@queue.command(epilog=example("tambo rsmq queue purge -n orders --yes"))
@name_option
@yes_option
@every_command
def purge(name: str, *, yes: bool, as_json: bool) -> None:
    """Delete all messages of a queue, hidden and delayed ones too, and keep the queue."""
    client = open_client()
    if not yes:
        count = client.get_queue_attributes(name).msgs
        confirm(f"Delete all {_messages(count)} of the queue {name}?", yes=yes)
    purged = client.purge_queue(name)
    if as_json:
        emit_json({"queue": name, "purged": purged})
    else:
        emit(f"deleted {_messages(purged)} of the queue {name}")


@queue.command(epilog=example("tambo rsmq queue stats -n orders --json"))
@name_option
@every_command
def stats(name: str, *, as_json: bool) -> None:
    """Count a queue message by message, and find damage.

    Reads the whole queue, a page at a time: about a second for 100,000 messages.
    """
    found = open_client().get_queue_stats(name)
    damage, journal = list(_damage(found)), look_at_journal(name)
    if as_json:
        counts = {field: getattr(found, field) for field in found.__struct_fields__}
        counts |= {"attributes": _object(found.attributes), "damaged": bool(damage)}
        emit_json({**counts, **journal_fields(journal)})
        return
    if damage:
        click.secho("This queue is damaged:", fg="red", bold=True)
        emit_table(("count", "what it is"), damage)
        emit("")
    _show_stats(found, journal)


def _look(client: Rsmq, name: str) -> QueueAttributes | TamboError:
    try:
        return client.get_queue_attributes(name)
    except StoreUnavailable:
        raise
    except TamboError as error:
        return error


def _listed(name: str, seen: QueueAttributes | TamboError) -> dict[str, object]:
    if isinstance(seen, TamboError):
        return {"queue": name, "error": str(seen)}
    return {"queue": name, **_object(seen)}


def _show_queues(found: dict[str, QueueAttributes | TamboError]) -> None:
    good = {name: seen for name, seen in found.items() if isinstance(seen, QueueAttributes)}
    emit_table(
        ("queue", "messages", "hidden", "sent", "received", "hides for", "delays by", "maxsize"),
        [
            (
                name,
                seen.msgs,
                seen.hiddenmsgs,
                seen.totalsent,
                seen.totalrecv,
                f"{seen.vt:g} s",
                f"{seen.delay:g} s",
                "none" if seen.maxsize == UNLIMITED else seen.maxsize,
            )
            for name, seen in good.items()
        ],
    )
    for name, seen in found.items():
        if isinstance(seen, TamboError):
            emit(spelled_out(f"{name}: {seen}"))


def _show_attributes(name: str, found: QueueAttributes, *, as_json: bool) -> None:
    if as_json:
        emit_json({"queue": name, **_object(found)})
    else:
        emit_table(("queue", name), _rows(found))


def _rows(found: QueueAttributes) -> list[tuple[str, str]]:
    limit = "unlimited" if found.maxsize == UNLIMITED else f"{found.maxsize} bytes"
    return [
        ("received messages are hidden for", f"{found.vt:g} s"),
        ("sent messages are delayed by", f"{found.delay:g} s"),
        ("longest message", limit),
        ("messages", str(found.msgs)),
        ("of them hidden", str(found.hiddenmsgs)),
        ("ever sent", str(found.totalsent)),
        ("ever received", str(found.totalrecv)),
        ("created", utc(found.created * 1000)),
        ("changed", utc(found.modified * 1000)),
        *(bounds_rows(found.bounds) if found.bounds.any else ()),
    ]


def _show_stats(found: QueueStats, journal: State | None) -> None:
    waiting = duration(found.oldest_visible_ms) if found.visible else "-"
    emit_table(
        ("queue", found.queue),
        [
            ("visible", str(found.visible)),
            ("in flight (received and hidden)", str(found.in_flight)),
            ("delayed", str(found.delayed)),
            ("oldest visible has waited", waiting),
            ("bytes in bodies", str(found.body_bytes)),
            *_rows(found.attributes),
            *journal_rows(journal),
        ],
    )


def _damage(found: QueueStats) -> Iterator[tuple[int, str]]:
    if found.members_without_body:
        yield found.members_without_body, "listed without a body: receivers skip them"
    if found.bodies_without_member:
        yield (
            found.bodies_without_member,
            "bodies without a scheduled id: no consumer can receive them",
        )
    if found.stray_fields:
        yield found.stray_fields, "counts and reasons of no message: they only take up room"


def _object(found: QueueAttributes) -> dict[str, object]:
    fields = {field: getattr(found, field) for field in found.__struct_fields__}
    # The output for a queue without bounds has no field for them.
    bounds = {"bounds": to_builtins(fields.pop("bounds"))}
    return {**fields, **(bounds if found.bounds.any else {})}


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"
