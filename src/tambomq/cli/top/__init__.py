"""``tambo top``: all queues of all protocols, live in a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click

from tambomq.cli.durations import METAVAR, positive_seconds
from tambomq.cli.output import emit, emit_json, emit_table, example, json_option, verbose_option
from tambomq.cli.redis_option import ns_option, redis_url_option

if TYPE_CHECKING:
    from tambomq.console.model import Overview

SORTS: Final = ("depth", "in", "out", "dead", "oldest", "name")
_MIN_EVERY_S: Final = 0.5


@click.command(
    epilog=example(
        "tambo top",
        "tambo top --sort dead --every 5s",
        "tambo top --once --json",
    )
)
@redis_url_option
@ns_option
@click.option(
    "--http-url",
    default="http://127.0.0.1:8090",
    metavar="URL",
    help="A `tambo serve`, for its KqueueMsgQ queues; left out if none answers. "
    "[http://127.0.0.1:8090]",
)
@click.option(
    "--sort",
    default=SORTS[0],
    type=click.Choice(SORTS),
    help=f"What comes first: {', '.join(SORTS)}. [{SORTS[0]}]",
)
@click.option(
    "--every",
    "every_s",
    default="2s",
    type=positive_seconds,
    metavar=METAVAR,
    help="How often to look; at least 500ms. [2s]",
)
@click.option("--once", is_flag=True, help="Print the numbers and end.")
@json_option
@verbose_option
def top(
    *,
    redis_url: str,
    ns: str,
    http_url: str,
    sort: str,
    every_s: float,
    once: bool,
    as_json: bool,
) -> None:
    """Show all queues of all protocols, live.

    Keys sort: d depth, i in, o out, x dead, a oldest, n name; r reverses, q quits. A queue with !
    needs you, one with ? is worth a look, one with = is paused. With --json, and without --once,
    there is a line of JSON for each refresh.
    """
    import asyncio

    if every_s < _MIN_EVERY_S:
        raise click.BadParameter("at least 500ms, for the sake of the server", param_hint="--every")
    if once:
        _show_once(redis_url, ns, http_url, sort, as_json=as_json)
    elif as_json:
        asyncio.run(_stream(redis_url, ns, http_url, sort, every_s))
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this is no terminal: give --once, or --json for a line a refresh")
    else:
        asyncio.run(_live(redis_url, ns, http_url, sort, every_s))


def _show_once(url: str, ns: str, http_url: str, sort: str, *, as_json: bool) -> None:
    import asyncio

    from tambomq.cli.top import live, rows

    overview = asyncio.run(live.once(url, ns, http_url))
    if as_json:
        _emit(overview, sort)
        return
    emit(rows.server(overview))
    emit(rows.totals(overview))
    ordered = rows.in_order(overview.queues, sort)
    emit_table(
        ("", *rows.COLUMNS, "state"),
        [(rows.sign(row), *rows.cells(row), rows.state(row)) for row in ordered],
    )


async def _stream(url: str, ns: str, http_url: str, sort: str, every_s: float) -> None:
    from tambomq.cli.top import live

    async with live.overviews(url, ns, every_s, http_url) as updates:
        async for overview in updates:
            _emit(overview, sort)


async def _live(url: str, ns: str, http_url: str, sort: str, every_s: float) -> None:
    from tambomq.cli.top import live

    async with live.overviews(url, ns, every_s, http_url) as updates:
        await live.TopDisplay(sort).run(updates)


def _emit(overview: Overview, sort: str) -> None:
    import msgspec

    from tambomq.cli.top.rows import in_order

    ordered = msgspec.structs.replace(overview, queues=in_order(overview.queues, sort))
    emit_json(msgspec.to_builtins(ordered))
