"""``tambo gomq``: publish to GOMQ keys, subscribe to them, observe them, and list subscribers."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tambomq.cli.brokers import bodies as broker_bodies
from tambomq.cli.brokers import gomq_observe
from tambomq.cli.brokers.client import (
    address_option,
    option_value,
    remembered_option,
    tls,
    tls_options,
)
from tambomq.cli.output import (
    Command,
    NothingThere,
    emit,
    emit_json,
    emit_table,
    example,
    json_option,
    verbose_option,
)
from tambomq.cli.redis_option import durable_option
from tambomq.cli.rsmq.client import open_store, url_option
from tambomq.errors import BrokerRefused
from tambomq.settings.load import GomqSettings

if TYPE_CHECKING:
    from tambomq.gomq.client import GomqClient

ADDRESS: Final = "{0.host}:{0.port}".format(GomqSettings())
ENV: Final = "TAMBO_GOMQ_TOKEN"
_PEER_CHARS: Final = 128


def connection_options(*, env: str | None = None) -> Callable[[Command], Command]:
    """Return a decorator that adds the server and peer options to a command or its group.

    The token may be in the variable *env*.
    """

    def decorate(command: Command) -> Command:
        command = tls_options(command)
        for option in (
            remembered_option(
                "--token",
                metavar="TEXT",
                envvar=env,
                show_envvar=env is not None,
                help="The server's bearer token.",
            ),
            remembered_option(
                "--peer",
                metavar="NAME",
                help="The peer name; commands with one name share its messages. [tambo-USER@HOST]",
            ),
            address_option("--address", ADDRESS, "the server"),
        ):
            command = option(command)
        return command

    return decorate


def every_command(command: Command) -> Command:
    """Add the options that all commands have."""
    for option in (verbose_option, connection_options(), json_option):
        command = option(command)
    return command


def default_peer() -> str:
    """Return the default peer name: this user on this machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may know no name for its user
        user = "user"
    name = f"tambo-{user}@{socket.gethostname()}"[:_PEER_CHARS]
    return "".join(c if c.isascii() and c.isprintable() and c not in ":_" else "-" for c in name)


def open_client(durable: str | None = None) -> GomqClient:
    """Return a client for what the command line says; the first call connects."""
    from tambomq.gomq.client import GomqClient

    return GomqClient(
        option_value("address", ADDRESS),
        peer=option_value("peer", default_peer()),
        token=option_value("token"),
        tls=tls(),
        durable=durable,
    )


@click.group(
    epilog=example(
        "tambo gomq subscribe greetings alice",
        "tambo gomq publish greetings 'hello' 'hello again'",
        "tambo gomq observe alice",
        "tambo gomq stats",
    )
    + "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing there."
)
@connection_options(env=ENV)
def gomq() -> None:
    """Publish to GOMQ keys, subscribe to them and observe them.

    Payloads are any bytes. A consumer's every peer gets every payload; all commands of a user on
    one machine are one peer, unless --peer names them differently.
    """


@gomq.command(
    epilog=example(
        "tambo gomq publish greetings hello 'hello again'",
        "tambo gomq publish pictures --file picture.png",
        "tail -f access.log | tambo gomq publish log",
    )
)
@click.argument("key")
@click.argument("payload", nargs=-1)
@broker_bodies.file_option
@durable_option
@every_command
def publish(
    key: str,
    *,
    payload: tuple[str, ...],
    file: BinaryIO | None,
    durable: str | None,
    as_json: bool,
) -> None:
    """Publish payloads to a key, and print how many.

    Without PAYLOAD, or with -, each line of standard input that is not empty is one. They wait
    if the key has no subscriber yet; the first one receives them.
    """
    source = broker_bodies.given(payload, file)
    with open_client(durable) as client:
        sent = broker_bodies.send_all(
            source, _Publisher(client, key).send, extra=len(key.encode()), verb="published"
        )
    if as_json:
        emit_json({"key": key, "published": sent})
    else:
        emit(f"published {sent} {'payload' if sent == 1 else 'payloads'} to the key {key}")


class _Publisher:
    """Publishes batches, one by one if a server does not support batches."""

    def __init__(self, client: GomqClient, key: str) -> None:
        self._client, self._key = client, key
        self._in_batches = True

    def send(self, bodies: list[bytes]) -> None:
        """Publish *bodies*."""
        if len(bodies) > 1 and self._in_batches:
            try:
                self._client.publish_many((self._key, body) for body in bodies)
            except BrokerRefused as error:
                if error.status != "UNIMPLEMENTED":
                    raise
                self._in_batches = False
            else:
                return
        for body in bodies:
            self._client.publish(self._key, body)


@gomq.command(epilog=example("tambo gomq subscribe greetings alice"))
@click.argument("key")
@click.argument("consumer")
@every_command
def subscribe(key: str, consumer: str, *, as_json: bool) -> None:
    """Subscribe a consumer to a key.

    A peer that has not observed for 30 seconds is disconnected; messages that only it had are kept
    for the next one.
    """
    with open_client() as client:
        client.subscribe(key, consumer)
        _show_subscription(key, consumer, client.peer, "receives", as_json=as_json)


@gomq.command(epilog=example("tambo gomq unsubscribe greetings alice"))
@click.argument("key")
@click.argument("consumer")
@every_command
def unsubscribe(key: str, consumer: str, *, as_json: bool) -> None:
    """Unsubscribe a consumer, with all its peers, from a key."""
    with open_client() as client:
        client.unsubscribe(key, consumer)
        _show_subscription(key, consumer, client.peer, "no longer receives", as_json=as_json)


@gomq.command(
    epilog=example(
        "tambo gomq observe alice",
        "tambo gomq observe alice --follow --json",
        "tambo gomq observe alice --follow --count 1 --raw | jq .name",
    )
)
@click.argument("consumer")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new messages, until Ctrl-C.")
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="COUNT", help="Exit after this many."
)
@click.option("--raw", is_flag=True, help="Print only payloads.")
@every_command
def observe(consumer: str, *, follow: bool, as_json: bool, **how: Any) -> None:
    """Print what waits for a consumer: key, id, timestamp and payload of each record.

    Printed messages are acknowledged. If a reply was not printed completely, all of it is delivered
    again. A reply with several keys may exceed --count; all of it is printed. With --json each
    record is an object on a line of its own, and a payload that is not UTF-8 becomes
    {"base64": "…"}. Exit 3 when nothing waits.
    """
    if how["raw"] and as_json:
        raise click.UsageError("--raw or --json, not both")
    show = gomq_observe.printer(as_json=as_json, raw=how["raw"])
    with open_client() as client:
        if follow and how["count"] is None:
            seen = gomq_observe.follow(client, consumer, show)
        else:
            seen = gomq_observe.take(client, consumer, show, count=how["count"], wait=follow)
    if not seen:
        raise NothingThere("" if as_json else f"nothing waits for the consumer {consumer}")


@gomq.command(epilog=example("tambo gomq stats", "tambo gomq stats -r redis://127.0.0.1:6380"))
@url_option("-r", "--redis-url", env=["TAMBO_REDIS_URL", "REDIS_URL"])
@verbose_option
@json_option
def stats(*, as_json: bool) -> None:
    """Show keys, their consumers and peers, and the messages that wait for each, from Redis.

    Exit 3 when there are no keys.
    """
    import msgspec

    from tambomq.gomq.ops import admin as admin_ops

    store = open_store()
    click.get_current_context().call_on_close(store.close)
    found = store.follow(admin_ops.overview())
    if as_json:
        emit_json(msgspec.to_builtins(found))
    elif found:
        emit_table(
            ("key", "in the main queue", "consumer", "peer", "waits for it"),
            [
                (key.name, key.waiting, name, peer, owed)
                for key in found
                for name, peer, owed in _receivers(key)
            ],
        )
    if not found:
        raise NothingThere("" if as_json else "there are no keys")


def _receivers(key: Any) -> list[tuple[str | None, str | None, int | None]]:
    """Return a row for each peer; one for a consumer without peers, one for a key without."""
    rows = [
        (consumer.name, peer, owed)
        for consumer in key.consumers
        for peer, owed in (consumer.peers or {None: None}).items()
    ]
    return rows or [(None, None, None)]


def _show_subscription(key: str, consumer: str, peer: str, verb: str, *, as_json: bool) -> None:
    if as_json:
        emit_json({"key": key, "consumer": consumer, "peer": peer})
    else:
        emit(f"the consumer {consumer} {verb} the key {key}")
