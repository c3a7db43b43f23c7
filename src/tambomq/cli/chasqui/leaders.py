"""``chasqui promoter`` and ``scheduler``: the leaders of queues, in a process of their own."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import CONSUMER_PREFIX, MAX_STREAM_LEN
from tambomq.cli.chasqui.client import PATIENCE_S, every_command, redis_url
from tambomq.cli.output import Command, example

if TYPE_CHECKING:
    from tambomq.chasqui.leader.leader import Leader
    from tambomq.chasqui.ops.leader import LeaderConfig
    from tambomq.store.aio import AsyncStore

LEVELS: Final = ("debug", "info", "warning", "error")

Start = Callable[["AsyncStore", "LeaderConfig"], "Leader"]


def leader_options(command: Command) -> Command:
    """Give *command* its queues and the options of all leaders."""
    for option in (
        every_command,
        click.option(
            "--log-level",
            type=click.Choice(LEVELS),
            default="info",
            help="The lowest level that is logged. [info]",
        ),
        click.option(
            "--max-stream-len",
            "cap",
            default=MAX_STREAM_LEN,
            type=click.IntRange(min=1),
            metavar="COUNT",
            help=f"Jobs that may wait or run at once. [{MAX_STREAM_LEN}]",
        ),
        click.argument("queues", nargs=-1, required=True, metavar="QUEUE..."),
    ):
        command = option(command)
    return command


@click.command(epilog=example("chasqui promoter emails reports"))
@leader_options
def promoter(**given: Any) -> None:
    """Release delayed jobs when they are due, until Ctrl-C.

    Workers do this too, unless it is disabled: one process leads a queue at a time, and
    another takes over when it ends. Logs go to stderr, with --json as JSON lines.
    """

    def start(store: AsyncStore, config: LeaderConfig) -> Leader:
        from tambomq.chasqui.leader.promoter import Promoter

        return Promoter(store, config)

    _lead("promoter", start, **given)


@click.command(epilog=example("chasqui scheduler emails reports"))
@click.option("--journal", is_flag=True, help="Record them, with their data, in their journals.")
@leader_options
def scheduler(**given: Any) -> None:
    """Fire repeatable jobs when they are due, until Ctrl-C.

    Workers do this too, unless it is disabled: one process leads a queue at a time, and
    another takes over when it ends. Logs go to stderr, with --json as JSON lines.
    """

    def start(store: AsyncStore, config: LeaderConfig) -> Leader:
        from tambomq.chasqui.leader.scheduler import Scheduler

        return Scheduler(store, config)

    _lead("scheduler", start, **given)


def _lead(
    duty: str,
    start: Start,
    *,
    queues: Sequence[str],
    cap: int,
    log_level: str,
    as_json: bool,
    journal: bool = False,
) -> None:
    import asyncio

    from tambomq import log
    from tambomq.chasqui.ops.leader import LeaderConfig
    from tambomq.journal.policy import JournalPolicy

    log.set_up(log_level, "json" if as_json else "text")
    # Two containers may have the same host name and the same pid.
    holder = f"{CONSUMER_PREFIX}{duty}-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    # A queue that is named twice is led once.
    offices = [
        LeaderConfig(
            Keys(name),
            holder,
            cap=cap,
            journal=JournalPolicy.for_queue("chasqui", name, journal),
        )
        for name in dict.fromkeys(queues)
    ]
    asyncio.run(_until_signal(start, offices))


async def _until_signal(start: Start, offices: Sequence[LeaderConfig]) -> None:
    import asyncio
    import logging
    import signal

    from tambomq.store.aio import AsyncStore

    say = logging.getLogger(__name__).info
    store = AsyncStore(redis_url(), patience_s=PATIENCE_S)
    leaders = [start(store, config) for config in offices]

    def on_signal(number: int) -> None:
        say("stopping on %s; once more to stop at once", signal.Signals(number).name)
        for leader in leaders:
            leader.close()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, on_signal, each)
    names = ", ".join(config.keys.queue for config in offices)
    say("the %s of %s is up, on %s", leaders[0].role, names, store.endpoint)
    try:
        await asyncio.gather(*(leader.run() for leader in leaders))
    finally:
        await store.close()
    say("stopped")
