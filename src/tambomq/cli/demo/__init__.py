"""``tambo demo``: a few seconds of traffic through every protocol of a running ``tambo serve``."""

from __future__ import annotations

import json
import os
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tambomq.cli.brokers import gomq, kqueue
from tambomq.cli.brokers.client import (
    address_option,
    host_and_port,
    option_value,
    remembered_option,
    tls,
    tls_options,
)
from tambomq.cli.durations import METAVAR, positive_seconds
from tambomq.cli.durations import seconds as duration_seconds
from tambomq.cli.output import (
    FAILED,
    OK,
    emit,
    emit_json,
    emit_table,
    example,
    json_option,
    verbose_option,
)
from tambomq.errors import BrokerError, SettingsError
from tambomq.ids import letters
from tambomq.store.endpoint import URL

if TYPE_CHECKING:
    from tambomq.cli.demo.display import DemoPlan, DemoResult

T = TypeVar("T")
PROTOCOLS: Final = ("rsmq", "chasqui", "gomq", "kqueue")
NAME: Final = "tambo-demo"
_NAME_LETTERS: Final = 8
_LIVE_LETTERS: Final = 4
_CONSOLE: Final = "http://127.0.0.1:8090"
_ENV: Final = ("TAMBO_REDIS_URL", "REDIS_URL")


@click.command(
    epilog=example(
        "tambo demo",
        "tambo demo --live",
        "tambo demo --for 1m",
        "tambo demo --count 10000 --seconds 0",
        "tambo demo --keep --count 3000 --seconds 60",
        "tambo serve --ready-file ready.json & tambo demo --ready-file ready.json",
    )
)
@click.option(
    "--count",
    default=100,
    type=click.IntRange(min=1, max=1_000_000),
    metavar="COUNT",
    help="Messages for each protocol. [100]",
)
@click.option(
    "--seconds",
    default="4",
    type=duration_seconds,
    metavar=METAVAR,
    help="Take so long to send them: 4 (seconds), 1m; 0 for as fast as it goes. [4]",
)
@click.option(
    "--live", is_flag=True, help="Go on until Ctrl-C, with failures and dead letters to look at."
)
@click.option(
    "--for",
    "for_s",
    type=positive_seconds,
    metavar=METAVAR,
    help="The same as --live, for so long: 1m.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Find the protocols in what `tambo serve --ready-file` wrote.",
)
@remembered_option(
    "--redis-url", metavar="URL", help=f"The server. [$TAMBO_REDIS_URL, $REDIS_URL, {URL}]"
)
@address_option("--gomq-address", gomq.ADDRESS, "GOMQ")
@address_option("--kqueue-address", kqueue.ADDRESS, "KqueueMsgQ")
@remembered_option(
    "--token", metavar="TEXT", envvar=gomq.ENV, show_envvar=True, help="GOMQ's bearer token."
)
@tls_options
@click.option("--skip-missing", is_flag=True, help="Leave out the protocols that are not open.")
@click.option(
    "--keep", is_flag=True, help="Leave queues and journals behind, for `tambo pipeline`."
)
@verbose_option
@json_option
def demo(
    *,
    count: int,
    seconds: float,
    live: bool,
    for_s: float | None,
    ready_file: Path | None,
    skip_missing: bool,
    keep: bool,
    as_json: bool,
) -> int:
    """Send a few seconds of traffic through every protocol, and check that all of it arrived.

    It needs a running `tambo serve`, which `make run` starts. Everything that it makes in Redis has
    a name of its own and, without --keep, is deleted at the end, also after Ctrl-C. Exit 1 if
    something was not as expected.
    """
    from tambomq.cli.demo import run as demo_run

    places = _places(ready_file)
    plan = replace(_plan(places, count, seconds), keep=keep)
    missing = _run(demo_run.missing(plan))
    missing |= {
        protocol: "it is not in the ready file" for protocol in PROTOCOLS if protocol not in places
    }
    if missing and (not skip_missing or len(missing) == len(PROTOCOLS)):
        raise BrokerError(_advice(missing, skip_missing=skip_missing))
    open_ones = [each for each in PROTOCOLS if each not in missing]
    if live or for_s:
        plan = replace(plan, name=f"demo-{letters(_LIVE_LETTERS)}")
        _say_live(plan, places.get("http"), for_s)
        traffic = demo_run.perform_live(plan, open_ones, for_s)
    else:
        traffic = demo_run.perform(plan, open_ones)
    outcomes = _run(traffic)
    if as_json:
        _show_json(outcomes, missing)
    else:
        _show(outcomes, missing, plan)
    return FAILED if any(outcome.wrong for outcome in outcomes) else OK


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    try:
        return asyncio.run(work)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _say_live(plan: DemoPlan, console: str | None, for_s: float | None) -> None:
    until = f"for {for_s:g} s" if for_s else "until Ctrl-C"
    if console is None:
        elsewhere = plan.redis_url != URL
        console = "what `tambo serve` lists as http," if elsewhere else _CONSOLE
    click.echo(f"Traffic through all protocols {until}. See it move: open", err=True)
    click.echo(f"{console} or type `tambo top` in another terminal.", err=True)
    click.echo("Dead letters come within a minute, in the queues", err=True)
    click.echo(f"{plan.name}-mails and {plan.name}-invoices.", err=True)


def _plan(places: Mapping[str, str], count: int, seconds: float) -> DemoPlan:
    from tambomq.cli.demo.display import DemoPlan

    return DemoPlan(
        name=f"{NAME}-{letters(_NAME_LETTERS)}",
        count=count,
        seconds=seconds,
        redis_url=places.get("redis", URL),
        gomq=places.get("gomq", gomq.ADDRESS),
        kqueue=host_and_port(places.get("kqueue", kqueue.ADDRESS)),
        token=option_value("token"),
        tls=tls(),
    )


def _places(ready_file: Path | None) -> dict[str, str]:
    """Return where each protocol is, by its name; what the ready file does not name is missing."""
    flags = {"redis": option_value("redis_url"), "gomq": option_value("gomq_address")}
    flags["kqueue"] = option_value("kqueue_address")
    from_flags = {name: address for name, address in flags.items() if address}
    environment = next(filter(None, map(os.environ.get, _ENV)), URL)
    found = {"redis": environment, "gomq": gomq.ADDRESS, "kqueue": kqueue.ADDRESS}
    found |= dict.fromkeys(("rsmq", "chasqui"), environment)
    return found | from_flags if ready_file is None else _read(ready_file) | from_flags


def _read(path: Path) -> dict[str, str]:
    try:
        endpoints = json.loads(path.read_text("utf-8"))["endpoints"]
        found = {str(name): str(each["address"]) for name, each in endpoints.items()}
        for name in ("gomq", "kqueue"):
            host_and_port(found.get(name, gomq.ADDRESS))
        return found
    except OSError as error:
        raise SettingsError(f"--ready-file: cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise SettingsError(f"--ready-file: {path} is none of `tambo serve`") from error


def _advice(missing: Mapping[str, str], *, skip_missing: bool) -> str:
    closed = ", ".join(f"{protocol} ({why})" for protocol, why in missing.items())
    other = "" if skip_missing else ", or leave them out with --skip-missing"
    return f"not open: {closed}: start them with `make run` or `tambo serve`{other}"


def _show(outcomes: Sequence[DemoResult], missing: Mapping[str, str], plan: DemoPlan) -> None:
    rows: list[tuple[object, ...]] = [
        (
            outcome.protocol,
            outcome.sent,
            outcome.received,
            ", ".join(f"{count} {what}" for what, count in outcome.notes.items()),
            f"{outcome.seconds:.1f} s",
            "; ".join(outcome.wrong) or "all as expected",
        )
        for outcome in outcomes
    ]
    rows += [
        (protocol, None, None, None, None, f"left out: {why}") for protocol, why in missing.items()
    ]
    emit_table(("protocol", "sent", "received", "of them", "time", "verdict"), rows)
    if plan.keep:
        names = plan.name if plan.name.startswith(NAME) else f"{plan.name}-…"
        emit(f"kept for `tambo pipeline`: the queues {names} of rsmq and chasqui")
    elif not any(outcome.wrong for outcome in outcomes):
        emit("everything that was made in Redis is deleted")
        if plan.name.startswith(NAME):
            text = "traffic to watch, with failures and dead letters: tambo demo --live"
            click.echo(text, err=True)


def _show_json(outcomes: Sequence[DemoResult], missing: Mapping[str, str]) -> None:
    protocols: dict[str, Any] = {
        outcome.protocol: {
            "sent": outcome.sent,
            "received": outcome.received,
            **{what.replace(" ", "_"): count for what, count in outcome.notes.items()},
            "seconds": round(outcome.seconds, 3),
            "wrong": outcome.wrong,
        }
        for outcome in outcomes
    }
    ok = not any(outcome.wrong for outcome in outcomes)
    emit_json({"ok": ok, "protocols": protocols, "left_out": dict(missing)})
