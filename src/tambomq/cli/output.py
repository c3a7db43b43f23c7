"""The output of all commands: results on stdout, errors on stderr, and the exit codes.

Results go through `emit`, `emit_json` and `emit_table`, so that control characters in a body or a
name cannot steer the reader's terminal. Faults are raised, never printed: `run` is
the one place that turns an exception into a line and a number.
"""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, TypeVar

import click

from tambomq.cli.extras import extras_required
from tambomq.errors import (
    BrokerUnavailable,
    DataDirBusy,
    PortTaken,
    QueueNotFound,
    SettingsError,
    StoreUnavailable,
    TamboError,
)
from tambomq.settings.types import LAST_PORT
from tambomq.text import format_address

if TYPE_CHECKING:
    from rich.table import Table

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOTHING: Final = 3
INTERRUPTED: Final = 130

# json.dumps escapes the first 32 control characters, but not these; lone surrogates cannot be
# encoded at all.
_UNSAFE_IN_JSON: Final = re.compile("[\x7f-\x9f\ud800-\udfff]")
# Characters that start a formula in a spreadsheet, with their full-width forms.
_FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001
_NUMERAL: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", re.ASCII)
# Where some spreadsheets begin a cell.
_INNER_FORMULA: Final = re.compile(
    rf"([;\t\n])(?=[\s\"']*[{re.escape(''.join(_FORMULAS).strip())}])"
    rf"(?!\s*{_NUMERAL.pattern}(?:[;\t\n]|$))"
)
# A pipe has no width: wide enough that no table is ever cut for it.
_PIPE_WIDTH: Final = 1_000_000
_STDERR: Final = 2

Command = TypeVar("Command", bound=Callable[..., object])


class NothingThere(Exception):
    """The result is empty: exit 3. The text, if any, goes to stderr."""


@dataclasses.dataclass(slots=True)
class CliState:
    """How one run of a command treats its faults; travels as click's context object."""

    verbose: bool = False


def json_option(command: Command) -> Command:
    """Give *command* ``--json``, which arrives as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def verbose_option(command: Command) -> Command:
    """Give *command* ``--verbose``; it is seen to by `run` and does not arrive as an argument."""
    return click.option(
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_be_verbose,
        help="Show the traceback of an error.",
    )(command)


def example(*lines: str) -> str:
    """Return *lines* as the end of a help page, each on a line of its own."""
    return "\n".join(("\b", "Example:", *(f"  {line}" for line in lines)))


def yes_option(command: Command) -> Command:
    """Give *command* ``--yes``, for `confirm`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def emit(text: str) -> None:
    """Print one line of a result."""
    click.echo(visible(text))


def emit_json(value: object) -> None:
    """Print *value* as one line of JSON.

    Dataclasses become objects, paths strings. Bytes become text; bytes that are not UTF-8 become
    ``{"base64": "…"}``, so that nothing is lost.
    """
    text = json.dumps(value, default=_plain, ensure_ascii=False)
    click.echo(_UNSAFE_IN_JSON.sub(lambda m: f"\\u{ord(m[0]):04x}", text))


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* under *columns*, as `table` draws them."""
    if sys.stdout is not None:  # not closed before we started
        click.echo(table(columns, rows), nl=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return *rows* under *columns*; numbers stand at the right.

    A terminal gets a table that fits it. A pipe gets whole cells: nothing is cut or wrapped there.
    """
    # rich takes longer to import than everything else here together.
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    terminal = sys.stdout is not None and sys.stdout.isatty()
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[index]) for row in cells)
        made.add_column(
            Text(_cell(column)),
            justify="right" if numeric else "left",
            no_wrap=numeric or not terminal,
            overflow="fold",
        )
    for row in cells:
        made.add_row(*(Text(_cell(value)) for value in row))
    return drawn(made, terminal=terminal)


def emit_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print *rows* under *columns* as CSV that spreadsheets and terminals only show.

    Control characters are spelled out. Text that a spreadsheet would take for a formula gets an
    apostrophe in front, also after a semicolon, tab or line end; numbers stay as they are.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_inert(column) for column in columns])
    writer.writerows([_inert(value) for value in row] for row in rows)
    click.echo(out.getvalue(), nl=False)


def drawn(table: Table, *, terminal: bool) -> str:
    """Return *table* as text, as wide as the *terminal*, or as it needs to be."""
    from rich.console import Console

    console = Console(highlight=False, width=None if terminal else _PIPE_WIDTH)
    # Captured, to be printed by us: rich ends the whole process when the reader has left.
    with console.capture() as text:
        console.print(table)
    return text.get()


def visible(text: str) -> str:
    """Return *text* with control characters spelled out, tabs and line ends excepted."""
    return "".join(c if c.isprintable() or c in "\t\n" else repr(c)[1:-1] for c in text)


def run(command: click.Command, prog: str, args: Sequence[str] | None = None) -> int:
    """Run *command* and return its exit code; every fault becomes one line on stderr.

    *args* are those of the process unless given. A bug is not a fault: its traceback passes.
    """
    _fill_standard_files()
    # gRPC's core would log every lost connection to stderr.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    state = CliState()
    try:
        with extras_required():
            code = command.main(args, prog_name=prog, standalone_mode=False, obj=state)
    except BrokenPipeError:
        forget_reader()
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except NothingThere as nothing:
        if text := str(nothing):
            click.echo(f"{prog}: {visible(text)}", err=True)
        return NOTHING
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except TamboError as error:
        if state.verbose:
            traceback.print_exception(error)
        click.echo(f"{prog}: {explain(error)}", err=True)
        return _exit_code(error)
    return code if isinstance(code, int) else OK


def _exit_code(error: TamboError) -> int:
    match error:
        case SettingsError():
            return USAGE
        case QueueNotFound():
            return NOTHING
    return FAILED


def forget_reader() -> None:
    """Carry on after the reader of our output has ended (`BrokenPipeError`).

    What is still to be printed is lost, and the interpreter does not complain on its way out.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: TamboError) -> str:
    """Return what went wrong and, where we know it, what to do next, on one line."""
    from tambomq.log import mask_url

    what = " ".join(visible(mask_url(str(error))).split("\n"))
    advice = _advice(error)
    return f"{what}: {advice}" if advice else what


def _advice(error: TamboError) -> str | None:
    match error:
        case PortTaken(host=host, port=port):
            return (
                f"use it with --redis-url redis://{format_address(host, port)}, "
                f"or choose another port with --redis-port {_next_port(port)}"
            )
        case DataDirBusy():
            return "use that one, or choose another directory with --data-dir"
        case StoreUnavailable() | BrokerUnavailable():
            return "is it running? `tambo serve` starts one"
    return None


def _fill_standard_files() -> None:
    """Open what was closed of files 0 to 2, or a socket will take the number and our output."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(number)


def _next_port(port: int) -> int:
    return port + 1 if port < LAST_PORT else port - 1


def _be_verbose(ctx: click.Context, _param: click.Parameter, value: object) -> None:
    if value:
        ctx.ensure_object(CliState).verbose = True


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_or_base64(bytes(value))
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _text_or_base64(data: bytes) -> object:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _inert(value: object) -> object:
    if value is None or _is_number(value):
        return value
    text = _INNER_FORMULA.sub(r"\1'", visible(str(value)))
    is_formula = text.lstrip(" \n").startswith(_FORMULAS) and not _NUMERAL.fullmatch(text)
    return f"'{text}" if is_formula else text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
