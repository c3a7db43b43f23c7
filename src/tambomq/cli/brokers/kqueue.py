"""``tambo kqueue``: send messages to KqueueMsgQ queues, receive them, show a server's counters."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from tambomq.cli.brokers import bodies as broker_bodies
from tambomq.cli.brokers.client import (
    address_option,
    emit_raw,
    host_and_port,
    one_line,
    option_value,
    tls,
    tls_options,
)
from tambomq.cli.durations import METAVAR, positive_seconds
from tambomq.cli.output import (
    Command,
    NothingThere,
    emit,
    emit_json,
    emit_table,
    example,
    explain,
    json_option,
    verbose_option,
)
from tambomq.clock import Deadline, backoff_delays
from tambomq.errors import BrokerError, BrokerUnavailable
from tambomq.settings.load import HttpSettings, KqueueSettings

if TYPE_CHECKING:
    from tambomq.kqueue.client import Consumer
    from tambomq.kqueue.frames import Message

ADDRESS: Final = "{0.host}:{0.port}".format(KqueueSettings())
HTTP: Final = "http://{0.host}:{0.port}".format(HttpSettings())
_ANSWER_WITHIN_S: Final = 5.0
_FIRST_PAUSE_S: Final = 0.1


def connection_options(command: Command) -> Command:
    """Give *command*, or its group, the server option."""
    return address_option("--address", ADDRESS, "the server")(tls_options(command))


def every_command(command: Command) -> Command:
    """Add the options that all commands have."""
    for option in (verbose_option, connection_options, json_option):
        command = option(command)
    return command


@click.group(
    epilog=example(
        "tambo kqueue consume orders",
        "tambo kqueue produce orders 'first' 'second'",
        "tambo kqueue stats",
    )
    + "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing there."
)
@connection_options
def kqueue() -> None:
    """Send messages to KqueueMsgQ queues and receive them.

    Names and bodies are any bytes. Nothing is stored: a consumer that is not subscribed when
    a message is sent does not receive it.
    """


@kqueue.command(
    epilog=example(
        "tambo kqueue produce orders first second",
        "tambo kqueue produce pictures --file picture.png",
        "tail -f access.log | tambo kqueue produce log",
    )
)
@click.argument("queue")
@click.argument("body", nargs=-1)
@broker_bodies.file_option
@every_command
def produce(queue: str, *, body: tuple[str, ...], file: BinaryIO | None, as_json: bool) -> None:
    """Send messages to a queue, and print how many.

    Without BODY, or with -, each line of standard input that is not empty is one. There is
    no confirmation that they were received: KqueueMsgQ has no acks.
    """
    from tambomq.kqueue.client import Producer

    source, name = broker_bodies.given(body, file), _name(queue)
    host, port = host_and_port(option_value("address", ADDRESS))
    with Producer(host, port, tls=tls()) as producer:
        sent = broker_bodies.send_all(
            source,
            lambda bodies: producer.send_many((name, each) for each in bodies),
            extra=len(name),
            verb="sent",
        )
    if as_json:
        emit_json({"queue": name, "sent": sent})
    else:
        emit(f"sent {sent} {'message' if sent == 1 else 'messages'} to the queue {queue}")


@kqueue.command(
    epilog=example(
        "tambo kqueue consume orders letters",
        "tambo kqueue consume --json",
        "tambo kqueue consume orders --count 1 --timeout 60 --raw | jq .id",
    )
)
@click.argument("queue", nargs=-1)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="COUNT", help="Exit after this many."
)
@click.option(
    "--timeout",
    type=positive_seconds,
    metavar=METAVAR,
    help="Exit if nothing is received for this long: 10 (seconds), 5m.",
)
@click.option("--raw", is_flag=True, help="Print only bodies.")
@every_command
def consume(
    queue: tuple[str, ...], *, count: int | None, timeout: float | None, raw: bool, as_json: bool
) -> None:
    """Print messages as they arrive, with their queues, until Ctrl-C.

    Without QUEUE those of all queues. If the server goes away, it reconnects. With --json each is
    an object on a line of its own; what is not UTF-8 becomes {"base64": "…"}. Exit 3 when --timeout
    expired before anything was received.
    """
    if raw and as_json:
        raise click.UsageError("--raw or --json, not both")
    from tambomq.kqueue.client import Consumer

    show, names = _printer(as_json=as_json, raw=raw), [_name(each) for each in queue]
    host, port = host_and_port(option_value("address", ADDRESS))
    with Consumer(host, port, tls=tls()) as consumer:
        if names:
            consumer.subscribe(*names)
        else:
            consumer.subscribe_all()
        seen = _consume(consumer, show, count, timeout)
    if not seen:
        raise NothingThere("" if as_json else f"nothing was received within {timeout:g} s")


@kqueue.command(epilog=example("tambo kqueue stats", "tambo kqueue stats --http http://host:8090"))
@click.option(
    "--http", default=HTTP, metavar="URL", help=f"The URL of the server's metrics. [{HTTP}]"
)
@verbose_option
@json_option
def stats(*, http: str, as_json: bool) -> None:
    """Show the state of a server and its counters since its start.

    `tambo serve` publishes it over HTTP.
    """
    if not http.startswith(("http://", "https://")):
        raise click.UsageError(f"--http {http}: expected a URL, such as {HTTP}")
    found = _asked(http.rstrip("/") + "/stats").get("kqueue")
    if not isinstance(found, dict):
        raise BrokerError(
            f"{http} has no metrics of KqueueMsgQ: is `tambo serve` running with --no-kqueue?"
        )
    if as_json:
        emit_json(found)
    else:
        emit_table(
            ("what", "count"), [(name.replace("_", " "), count) for name, count in found.items()]
        )


def _name(queue: str) -> bytes:
    # Arguments that are not UTF-8 arrive with surrogates; encode them back to the same bytes.
    return queue.encode("utf-8", "surrogateescape")


def _printer(*, as_json: bool, raw: bool) -> Callable[[Message], None]:
    if raw:
        return lambda message: emit_raw(message.body)
    if as_json:
        return lambda message: emit_json({"queue": message.queue, "body": message.body})
    return lambda message: emit(f"{one_line(message.queue)}  {one_line(message.body)}")


def _consume(
    consumer: Consumer,
    show: Callable[[Message], None],
    count: int | None,
    timeout: float | None,
) -> int:
    """Show messages and return how many; at least 1 if Ctrl-C ended it."""
    seen = 0
    try:
        while count is None or seen < count:
            message = _received(consumer, timeout)
            if message is None:
                break
            show(message)
            seen += 1
    except KeyboardInterrupt:
        return max(seen, 1)
    return seen


def _received(consumer: Consumer, timeout: float | None) -> Message | None:
    """Return the next message, however often the server goes away; `None` after *timeout*."""
    silence = None if timeout is None else Deadline(timeout)
    waits, has_warned = backoff_delays(_FIRST_PAUSE_S), False
    while True:
        try:
            return consumer.receive(silence.left_s if silence else None)
        except BrokerUnavailable as error:
            if silence and silence.passed:
                return None
            if not has_warned:
                click.echo(f"{explain(error)}; still trying", err=True)
                has_warned = True
            time.sleep(next(waits))


def _asked(url: str) -> dict[str, Any]:
    """Return the JSON object that *url* answers with."""
    import json
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, build_opener

    # As all our clients: straight to the server.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=_ANSWER_WITHIN_S) as reply:
            found = json.load(reply)
    except HTTPError as error:
        error.close()
        raise BrokerError(
            f"{url} answers {error.code} {error.reason}: is it `tambo serve`?"
        ) from error
    except URLError as error:
        raise BrokerUnavailable(
            url, getattr(error.reason, "strerror", None) or error.reason
        ) from error
    except (OSError, HTTPException) as error:
        raise BrokerUnavailable(url, error) from error
    except ValueError as error:
        raise BrokerError(f"{url} does not answer with JSON: is it `tambo serve`?") from error
    if not isinstance(found, dict):
        raise BrokerError(f"{url} does not answer as expected: is it `tambo serve`?")
    return found
