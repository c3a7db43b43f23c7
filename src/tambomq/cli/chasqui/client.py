"""The server and queue options of ``chasqui``, and helpers that all its commands share.

Every command opens its store or queue here; both are closed when the command ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from tambomq.chasqui.blocking_queue import BlockingQueue
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.cli.output import Command, json_option, verbose_option, visible
from tambomq.clock import now_ms
from tambomq.errors import (
    ForeignLeader,
    LocalProtocolError,
    QueueBusy,
    QueueError,
    QueueFull,
    QueueNotFound,
)
from tambomq.store.call import Call
from tambomq.store.durability.level import MEMORY
from tambomq.store.durability.sync import stores
from tambomq.store.endpoint import URL
from tambomq.store.sync import Store

# Interactive: long enough for a server that restarts, short enough for a user who waits.
PATIENCE_S: Final = 1.0
ENV: Final = ("CHASQUI_REDIS_URL", "TAMBO_REDIS_URL", "REDIS_URL")
_URL: Final = "tambomq.chasqui.redis_url"
_STORE: Final = "tambomq.chasqui.store"


class InteractiveQueue(BlockingQueue):
    """A queue for interactive use: it gives up soon."""

    def __init__(self, name: str, store: Store, **options: Any) -> None:
        super().__init__(name, redis_url=store.endpoint, **options)
        self._store, self._senders = store, stores(store, options.get("durable", MEMORY))

    def wrong_among(self, jobs: Sequence[dict[str, Any]]) -> int:
        """Return the index of the first job that `add_bulk` would refuse."""
        for place, job in enumerate(jobs):
            try:
                # The plan checks the job before its first round trip.
                next(self._producer.add_bulk(now_ms(), [job]))
            except LocalProtocolError:
                return place
        return 0


def url_option(*, env: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Return a decorator that adds the server option to a command or its group."""
    return click.option(
        "--redis-url",
        metavar="URL",
        envvar=env,
        show_envvar=bool(env),
        expose_value=False,
        callback=_remember,
        help=f"The server. [{URL}]",
    )


def every_command(command: Command) -> Command:
    """Add the options that all commands have: ``--json``, ``--redis-url``, ``--verbose``."""
    for option in (verbose_option, url_option(), json_option):
        command = option(command)
    return command


def queue_argument(command: Command) -> Command:
    """Give *command* its queue."""
    return click.argument("queue")(command)


def group_option(command: Command) -> Command:
    """Give *command* ``--group``."""
    return click.option(
        "--group", default=GROUP, metavar="NAME", help=f"The workers' consumer group. [{GROUP}]"
    )(command)


def redis_url() -> str:
    """Return the server that the command line or the environment names."""
    url: str = click.get_current_context().meta.get(_URL, URL)
    return url


def open_store() -> Store:
    """Return the server, one for the whole command. The first call connects."""
    ctx = click.get_current_context()
    if (store := ctx.meta.get(_STORE)) is None:
        store = ctx.meta[_STORE] = Store(redis_url(), patience_s=PATIENCE_S)
        ctx.call_on_close(store.close)
    found: Store = store
    return found


def open_queue(queue: str, **options: Any) -> InteractiveQueue:
    """Return a queue of the server; *options* are those of `BlockingQueue`."""
    opened = InteractiveQueue(queue, open_store(), **options)
    click.get_current_context().call_on_close(opened.close)
    return opened


def is_there(queue: str) -> bool:
    """Return whether *queue* has any key in Redis."""
    keys = Keys(queue)
    parts = (keys.stream, keys.delayed, keys.dlq, keys.repeat, keys.events, keys.paused)
    return bool(open_store().run(Call("EXISTS", parts, (), int, repeatable=True)))


def require_queue(queue: str) -> None:
    """Raise `QueueNotFound` unless *queue* is there."""
    if not is_there(queue):
        raise QueueNotFound(queue)


def confirm(question: str, *, yes: bool) -> None:
    """Return if the answer is y or yes; else raise an error, and nothing is done."""
    if not yes and _answer(f"{question} [y/N]: ").lower() not in ("y", "yes"):
        raise click.ClickException("aborted")


def confirm_name(question: str, name: str, *, yes: bool) -> None:
    """Return if the answer is *name*; else raise an error, and nothing is done."""
    if not yes and _answer(f"{question} ") != name:
        raise click.ClickException("aborted")


@contextmanager
def flags_in_faults() -> Iterator[None]:
    """Replace errors that name options of the library by errors that name flags."""
    try:
        yield
    except ForeignLeader as error:
        raise QueueError(
            error.queue,
            f"queue {error.queue!r} is led by {error.holder!r}, another engine: "
            "--dialect engine stores a delayed job as it reads it",
        ) from error
    except QueueFull as error:
        raise QueueError(
            error.queue,
            f"queue {error.queue!r} holds {error.cap} jobs and takes no more: let workers catch "
            "up, raise --max-stream-len, or lose the oldest with --overflow trim",
        ) from error
    except QueueBusy as error:
        raise QueueError(
            error.queue,
            f"queue {error.queue!r} is busy with {jobs(error.active)}: "
            "stop its workers, or use --force",
        ) from error


def jobs(count: int, kind: str = "") -> str:
    """Return how many jobs these are, in words."""
    return " ".join(filter(None, (str(count), kind, "job" if count == 1 else "jobs")))


def _answer(question: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():  # `None`: closed before we started
        raise click.UsageError("cannot ask for confirmation without a terminal: give --yes")
    click.echo(visible(question), nl=False, err=True)
    return sys.stdin.readline().strip()


def _remember(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    # Groups come before their commands, so the option closer to the command wins.
    if value:
        ctx.meta[_URL] = value
