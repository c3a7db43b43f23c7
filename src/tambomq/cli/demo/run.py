"""The run of ``tambo demo``: the traffic of all protocols at once, and which of them are served."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from tambomq.cli.brokers.client import host_and_port
from tambomq.cli.demo import brokers as demo_brokers
from tambomq.cli.demo import live as demo_live
from tambomq.cli.demo import redis as demo_redis
from tambomq.cli.demo.display import DemoDisplay, DemoPlan, DemoResult, together
from tambomq.errors import StoreError, TamboError
from tambomq.log import mask_url
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call

_OPEN_WITHIN_S: Final = 2.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
# Some senders repeat a signal once; a third one ends the process at once.
_INSISTENT: Final = 2
_REPORT_EVERY_S: Final = 10.0

PLAYS: Final[dict[str, Callable[[DemoPlan, DemoResult], Coroutine[Any, Any, None]]]] = {
    "rsmq": demo_redis.rsmq,
    "chasqui": demo_redis.chasqui,
    "gomq": demo_brokers.gomq,
    "kqueue": demo_brokers.kqueue,
}

LIVE: Final = {
    "rsmq": demo_live.rsmq,
    "chasqui": demo_live.chasqui,
    "gomq": demo_live.gomq,
    "kqueue": demo_live.kqueue,
}
"""The same for traffic without an end."""


async def missing(plan: DemoPlan) -> dict[str, str]:
    """Return which protocols are not open, and why."""
    redis = await _why_no_redis(plan.redis_url)
    found = {
        "rsmq": redis,
        "chasqui": redis,
        "gomq": await _why_no_listener(*host_and_port(plan.gomq)),
        "kqueue": await _why_no_listener(*plan.kqueue),
    }
    return {protocol: why for protocol, why in found.items() if why}


async def perform(plan: DemoPlan, protocols: Sequence[str]) -> list[DemoResult]:
    """Send traffic through *protocols* and return the results.

    SIGINT and SIGTERM cancel it; what was made is deleted all the same.
    """
    with DemoDisplay() as display, _signals():
        outcomes = [DemoResult(protocol, display) for protocol in protocols]
        try:
            return await together(
                *(each.of(PLAYS[each.protocol](plan, each), plan.within_s) for each in outcomes)
            )
        except asyncio.CancelledError:
            left = [each for outcome in outcomes for each in outcome.wrong]
            click.echo("; ".join(left) or "stopped; what was made is deleted", err=True)
            raise


async def perform_live(
    plan: DemoPlan, protocols: Sequence[str], for_s: float | None
) -> list[DemoResult]:
    """Send traffic through *protocols* for *for_s*, or until SIGINT or SIGTERM; clean up."""
    outcomes = [DemoResult(protocol, DemoDisplay()) for protocol in protocols]
    began = time.monotonic()
    with _signals():
        tasks = [asyncio.ensure_future(_faults(each, plan)) for each in outcomes]
        watch = asyncio.ensure_future(_report(outcomes))
        try:
            await asyncio.wait(tasks, timeout=for_s)
        except asyncio.CancelledError:
            # The first signal: the end that people choose.
            click.echo("stopping", err=True)
        finally:
            for task in (*tasks, watch):
                task.cancel()
            await asyncio.wait((*tasks, watch))
    for each in outcomes:
        each.seconds = time.monotonic() - began
    return outcomes


async def _faults(outcome: DemoResult, plan: DemoPlan) -> None:
    try:
        await LIVE[outcome.protocol](plan, outcome)
    except TamboError as error:
        outcome.wrong.append(mask_url(str(error)))
        outcome.say(outcome.wrong[-1])


async def _report(outcomes: Sequence[DemoResult]) -> None:
    while True:
        await asyncio.sleep(_REPORT_EVERY_S)
        counts = (f"{each.protocol} {each.sent} → {each.received}" for each in outcomes)
        click.echo("  ".join(("sent → received:", *counts)), err=True)


@contextmanager
def _signals() -> Iterator[None]:
    """Cancel the task at the first signal. Another one that follows must not stop the cleaning."""
    task, loop, caught = asyncio.current_task(), asyncio.get_running_loop(), list[int]()

    def on_signal(number: int) -> None:
        caught.append(number)
        if task is not None and len(caught) == 1:
            task.cancel()
        elif len(caught) > _INSISTENT:
            os._exit(128 + number)

    for each in _SIGNALS:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


async def _why_no_redis(url: str) -> str:
    store = AsyncStore(url, patience_s=0)
    try:
        await store.run(Call("PING", (), (), bool, repeatable=True))
    except StoreError as error:
        return mask_url(str(error))
    finally:
        await store.close()
    return ""


async def _why_no_listener(host: str, port: int) -> str:
    try:
        async with asyncio.timeout(_OPEN_WITHIN_S):
            _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        # asyncio has words of its own for what the system says; a name has errors below 0.
        number = error.errno or 0
        said = os.strerror(number) if number > 0 else error.strerror
        return f"{host}:{port}: {said or 'no answer'}"
    writer.close()
    return ""
