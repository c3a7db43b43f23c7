"""``tambo explain``: why a message is not running, and what happened to it."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tambomq.cli.output import NothingThere, emit, emit_json, example, json_option, verbose_option
from tambomq.cli.times import utc
from tambomq.console.messages import read_message
from tambomq.console.messages.body import one_line
from tambomq.console.messages.phrases import count
from tambomq.console.model import QueueRef
from tambomq.errors import InvalidFormat, MessageNotFound
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import URL

if TYPE_CHECKING:
    from tambomq.console.messages.model import MessageDetail

WIDTH: Final = 80
"""Columns; only commands, which must stay whole to be pasted, may be longer."""
PATIENCE_S: Final = 1.0

_VERDICTS: Final = {"holds": "holds it now", "next": "holds it next", "open": "open"}
_BODY_LINES: Final = 20


@click.command(epilog=example("tambo explain chasqui:payments 01M7JGXBNGCBFD438G3QEGWJS9"))
@click.argument("queue", metavar="PROTOCOL:QUEUE")
@click.argument("id")
@click.option(
    "--redis-url",
    default=URL,
    metavar="URL",
    envvar=["TAMBO_REDIS_URL", "REDIS_URL"],
    show_envvar=True,
    help=f"The server. [{URL}]",
)
@click.option("--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]")
@json_option
@verbose_option
def explain(queue: str, id: str, *, redis_url: str, ns: str, as_json: bool) -> None:
    """Explain why a message is not running, and show what happened to it.

    Nothing is changed. Exit 3 when nothing is known of the message.
    """
    try:
        ref = QueueRef.parse(queue)
    except InvalidFormat as error:
        raise click.BadParameter(f"{queue!r} is not {error.rule}") from None
    try:
        found = asyncio.run(_read(redis_url, ref, id, ns))
    except MessageNotFound as error:
        raise NothingThere(str(error)) from None
    if as_json:
        emit_json(msgspec.to_builtins(found))
        return
    for line in report(found):
        emit(line)


async def _read(url: str, ref: QueueRef, id: str, ns: str) -> MessageDetail:
    store = AsyncStore(url, patience_s=PATIENCE_S)
    try:
        return await read_message(store, ref, id, rsmq_ns=ns)
    finally:
        await store.close()


def report(found: MessageDetail) -> Iterator[str]:
    """Yield the lines about a message, none longer than `WIDTH` but for commands."""
    row = found.row
    name = f" {row.name}" if row.name else ""
    yield from _wrapped(f"{row.queue}{name} {row.id}")
    yield ""
    yield from _wrapped(" ".join(filter(None, (found.why.headline, found.why.detail))))
    if found.why.gates:
        yield ""
        rows = [(g.name, g.now, _VERDICTS[g.verdict]) for g in found.why.gates]
        yield from _table(("Gate", "Now", "Verdict"), rows)
    yield ""
    yield from _table((), found.facts)
    yield from _section("Timeline, newest first")
    times = [("-" if e.at_ms is None else utc(e.at_ms), e.text) for e in found.timeline]
    yield from _table((), times)
    if found.timeline_note:
        yield from _wrapped(found.timeline_note)
    yield from _body(found)
    yield from _section("The same from Redis; these only read")
    for shows, command in found.commands:
        yield from _wrapped(f"# {one_line(shows)}")
        yield command


def _body(found: MessageDetail) -> Iterator[str]:
    if found.body is None:
        return
    text = getattr(found.body, found.body.best) or ""
    yield from _section(f"Body, {count(found.body.size_bytes, 'byte')}, as {found.body.best}")
    lines = text[: _BODY_LINES * WIDTH].split("\n")
    shown = [part for line in lines for part in _wrapped(line)]
    yield from shown[:_BODY_LINES]
    if len(shown) > _BODY_LINES or len(text) > _BODY_LINES * WIDTH or found.body.cut_off:
        yield "… (--json shows more)"


def _section(title: str) -> Iterator[str]:
    yield ""
    yield title


def _wrapped(text: str, width: int = WIDTH) -> list[str]:
    """Return *text* in lines, with control characters spelled out before they are measured."""
    safe = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return textwrap.wrap(safe, width, replace_whitespace=False, drop_whitespace=True) or [""]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows in columns; the widest column is wrapped until all of it fits."""
    cells = [*([columns] if columns else []), *rows]
    if not cells:
        return
    widths = [min(max(len(_safe(row[at])) for row in cells), WIDTH) for at in range(len(cells[0]))]
    widest = widths.index(max(widths))
    gaps = 2 * (len(widths) - 1)
    widths[widest] = max(16, min(widths[widest], WIDTH - gaps - sum(widths) + widths[widest]))
    for row in cells:
        parts = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, parts))):
            texts = [part[line] if line < len(part) else "" for part in parts]
            padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
            yield "  ".join(padded).rstrip()


def _safe(text: str) -> str:
    return "".join(_wrapped(text, 10**6))
