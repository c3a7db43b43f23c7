"""The screen of ``tambo top``, drawn for any width and height. Nothing of a name steers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from tambomq.cli.top import rows
from tambomq.console.model import Overview, QueueRow

KEYS: Final = {"d": "depth", "i": "in", "o": "out", "x": "dead", "a": "oldest", "n": "name"}
"""Keys, and what each sorts by."""
WIDE, NARROW = 120, 72
"""From this width on there are more columns, and below this one fewer."""
_HELP: Final = "sort: d depth  i in  o out  x dead  a oldest  n name   r reverse   q quit"
_WIDTHS: Final = {"depth": 7, "running": 7, "delayed": 7, "drained in": 10, "state": 14}
_WIDTH: Final = 6
_MAX_TROUBLES: Final = 3
_STYLES: Final = {"red": "bold red", "amber": "yellow"}


def screen(
    overview: Overview | None,
    *,
    sort: str,
    backwards: bool,
    size: tuple[int, int],
    now_ms: int,
) -> RenderableType:
    """Return everything that is shown on *size*, columns and lines."""
    width, height = size
    if overview is None:
        return Group(_line("tambo top  waiting for the first numbers"), _line(_HELP, "dim"))
    lost = rows.lost(overview, now_ms)
    above = [_line(f"tambo top  {rows.server(overview)}", "bold")]
    above.append(_line(lost, "bold red reverse") if lost else _line(rows.totals(overview)))
    below = [_line(text) for text in rows.troubles(overview, _MAX_TROUBLES)]
    # Its head and the line of keys.
    free = max(1, height - len(above) - len(below) - 2)
    ordered = rows.in_order(overview.queues, sort, backwards=backwards)
    shown = ordered if len(ordered) <= free else ordered[: max(0, free - 1)]
    if len(shown) < len(ordered):
        below.insert(0, _line(f"… and {len(ordered) - len(shown):,} more", "dim"))
    if not ordered and not lost:
        below.insert(0, _line("no queue yet: `tambo demo` makes some, with traffic"))
    table = _table(shown, sort, _columns(width))
    return Group(*above, table, *below, _line(_HELP, "dim"))


def _columns(width: int) -> Sequence[str]:
    if width >= WIDE:
        return rows.WIDE_COLUMNS
    return rows.COLUMNS if width >= NARROW else rows.NARROW_COLUMNS


def _table(shown: list[QueueRow], sort: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    table.header_style = "bold"
    table.add_column("", width=1)
    of_sort = {"in": "in/s", "out": "out/s", "name": "queue"}.get(sort, sort)
    for name in columns:
        title = Text(name, style="underline" if name == of_sort else "")
        if name == "queue":
            table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1)
        else:
            justify: JustifyMethod = "left" if name == "state" else "right"
            width = _WIDTHS.get(name, _WIDTH)
            table.add_column(title, justify=justify, no_wrap=True, width=width)
    for row in shown:
        style = _STYLES[row.trouble.severity] if row.trouble else ""
        texts = (rows.sign(row), *rows.cells(row, columns))
        table.add_row(*(Text(text, style=style) for text in texts))
    return table


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
