"""``tambo rsmq message``: send, receive, look at and settle messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tambomq.cli.durations import METAVAR, seconds
from tambomq.cli.output import NothingThere, emit, emit_json, example
from tambomq.cli.redis_option import durable_option
from tambomq.cli.rsmq import bodies as rsmq_bodies
from tambomq.cli.rsmq.bodies import SendOptions, body_options
from tambomq.cli.rsmq.client import name_option, open_client
from tambomq.cli.rsmq.options import base64_option, every_command
from tambomq.cli.rsmq.render import emit_peeked, message_object, show_peeked, show_received
from tambomq.rsmq import Message, Rsmq


@click.group()
def message() -> None:
    """Send, receive, look at and settle messages."""


@message.command(
    epilog=example(
        "tambo rsmq message send -n orders -m one -m two",
        "tambo rsmq message send -n orders --file picture.png",
        "tambo rsmq message send -n orders --lines < orders.jsonl",
    )
)
@name_option
@body_options
@click.option(
    "-d",
    "--delay",
    type=seconds,
    metavar=METAVAR,
    help="How long they stay hidden: 30 (seconds), 5m. [the queue's own]",
)
@click.option("--realtime", is_flag=True, help="Tell waiting receivers at once.")
@click.option("--journal", is_flag=True, help="Record them in the queue's journal.")
@durable_option
@every_command
def send(
    name: str,
    *,
    delay: float | None,
    realtime: bool,
    journal: bool,
    durable: str | None,
    as_json: bool,
    **places: Any,
) -> None:
    """Send messages and print their ids; with --lines, how many.

    They are received in the order given. A body of -m that is too long stops all of them; a line
    that cannot be sent stops those after it, and it is said up to which line all were sent.
    """
    given = SendOptions(**places)
    rsmq_bodies.check(given)
    client = open_client(realtime=realtime, journal=(name,) if journal else (), durable=durable)
    if given.lines:
        sent = rsmq_bodies.send_lines(client, name, given, delay=delay)
        _show_count(name, sent, as_json=as_json)
        return
    ids = client.send_messages(name, rsmq_bodies.bodies(given), delay=delay)
    if as_json:
        emit_json({"queue": name, "ids": ids})
    else:
        emit("\n".join(ids))


@message.command(
    epilog=example(
        "tambo rsmq message receive -n orders --wait 20",
        "tambo rsmq message receive -n orders -c 100 --json",
    )
)
@name_option
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    type=seconds,
    metavar=METAVAR,
    help="How long they stay hidden: 30 (seconds), 5m. [the queue's own]",
)
@click.option(
    "-c",
    "--count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="At most this many; --json then prints a list. [1]",
)
@click.option(
    "--wait",
    type=seconds,
    default="0",
    metavar=METAVAR,
    help="Wait for a message, if there is none: 20 (seconds), 5m. [0]",
)
@base64_option("Print the exact bytes of bodies, as base64.")
@every_command
def receive(
    name: str,
    *,
    vt: float | None,
    count: int | None,
    wait: float,
    as_base64: bool,
    as_json: bool,
) -> None:
    """Receive messages: the oldest visible ones, which are then hidden for a while.

    Delete a message when you are done with it, or it will be received again. With --json a body
    that is not UTF-8 becomes {"base64": "…"}. Exit 3 when nothing is visible.
    """
    client = open_client()
    found = client.receive_messages(name, count or 1, vt=vt, wait=wait)
    if as_json:
        _emit_received(found, one=count is None, as_base64=as_base64)
    elif found:
        show_received(found, popped=False, as_base64=as_base64)
    if not found:
        raise _nothing(client, name, as_json=as_json)


@message.command(epilog=example("tambo rsmq message pop -n orders --json"))
@name_option
@base64_option("Print the exact bytes of the body, as base64.")
@every_command
def pop(name: str, *, as_base64: bool, as_json: bool) -> None:
    """Receive the oldest visible message and delete it: no other consumer receives it.

    If the output is lost, so is the message. Exit 3 when nothing is visible.
    """
    client = open_client()
    found = client.pop_message(name)
    if as_json:
        _emit_received([found] if found else [], one=True, as_base64=as_base64)
    elif found:
        show_received([found], popped=True, as_base64=as_base64)
    if not found:
        raise _nothing(client, name, as_json=as_json)


@message.command(epilog=example("tambo rsmq message peek -n orders -c 50"))
@name_option
@click.option(
    "-c",
    "--count",
    default=10,
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="At most this many. [10]",
)
@click.option(
    "--first", default=0, type=click.IntRange(min=0), metavar="RANK", help="Where to begin. [0]"
)
@base64_option("Print bodies as base64.")
@every_command
def peek(name: str, *, count: int, first: int, as_base64: bool, as_json: bool) -> None:
    """Look at messages, hidden and delayed ones too, without receiving them.

    They come in the order in which they are or become visible. Bodies are cut; --json has all
    of them. In a dead-letter queue the reason is shown. Exit 3 when there are none.
    """
    found = open_client().peek_messages(name, count, first=first)
    if as_json:
        emit_peeked(found, as_base64=as_base64)
    elif found:
        show_peeked(found, as_base64=as_base64)
    if not found:
        raise NothingThere("" if as_json else f"there are no messages on the queue {name}")


@message.command(epilog=example("tambo rsmq message delete -n orders -i ID"))
@name_option
@click.option(
    "-i",
    "--message-id",
    "ids",
    required=True,
    multiple=True,
    metavar="ID",
    help="The message; repeat it to delete several.",
)
@every_command
def delete(name: str, *, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete messages. Exit 3 when one was not there; the others are deleted all the same."""
    done = open_client().delete_messages(name, ids)
    deleted = [id for id, there in zip(ids, done, strict=True) if there]
    missing = [id for id, there in zip(ids, done, strict=True) if not there]
    if as_json:
        emit_json({"queue": name, "deleted": deleted, "missing": missing})
    elif deleted:
        emit("\n".join(f"deleted {id}" for id in deleted))
    if missing:
        raise NothingThere("" if as_json else f"not on the queue {name}: {', '.join(missing)}")


@message.command(epilog=example("tambo rsmq message visibility -n orders -i ID -t 600"))
@name_option
@click.option("-i", "--message-id", "id", required=True, metavar="ID", help="The message.")
@click.option(
    "-t",
    "--visibility-timeout",
    "vt",
    type=seconds,
    required=True,
    metavar=METAVAR,
    help="When it is visible, from now: 30 (seconds), 5m; 0 for at once.",
)
@every_command
def visibility(name: str, *, id: str, vt: float, as_json: bool) -> None:
    """Change when a message becomes visible. Exit 3 when it is not there."""
    done = open_client().change_message_visibility(name, id, vt)
    if as_json:
        emit_json({"queue": name, "id": id, "vt": vt, "changed": done})
    elif done:
        emit(f"{id} is visible {f'in {vt:g} s' if vt else 'now'}")
    if not done:
        raise NothingThere("" if as_json else f"not on the queue {name}: {id}")


def _show_count(queue: str, sent: int, *, as_json: bool) -> None:
    if as_json:
        emit_json({"queue": queue, "sent": sent})
    else:
        emit(f"sent {sent} messages to the queue {queue}")


def _emit_received(found: Sequence[Message], *, one: bool, as_base64: bool) -> None:
    shown = [message_object(each, as_base64=as_base64) for each in found]
    emit_json((shown[0] if shown else None) if one else shown)


def _nothing(client: Rsmq, queue: str, *, as_json: bool) -> NothingThere:
    if as_json:
        return NothingThere()
    hidden = client.get_queue_attributes(queue).hiddenmsgs
    text = f"nothing to receive on the queue {queue}"
    return NothingThere(
        f"{text}; {hidden} hidden or delayed: see `message peek`" if hidden else text
    )
