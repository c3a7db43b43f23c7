"""``tambo serve``: loads settings, runs the process, and prints its endpoints."""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import click

import tambomq
from tambomq import log
from tambomq.cli.durations import METAVAR, seconds
from tambomq.cli.lake_view import lake_view_option, pipeline_reader
from tambomq.cli.output import (
    Command,
    emit,
    emit_json,
    emit_table,
    forget_reader,
    json_option,
    verbose_option,
)
from tambomq.serve import process
from tambomq.serve.component import ServedEndpoint
from tambomq.serve.ready_file import report
from tambomq.settings import load as settings
from tambomq.settings.types import Flag, Names, Seconds

_log: Final = logging.getLogger(__name__)

_OF_DEMO: Final = {
    "redis": ("--redis-url", "redis://127.0.0.1:6379"),
    "gomq": ("--gomq-address", "127.0.0.1:10001"),
    "kqueue": ("--kqueue-address", "127.0.0.1:8000"),
}
"""The components that `tambo demo` needs: its flag for the address, and the default."""


class GroupedCommand(click.Command):
    """A command whose help lists its options section by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what concerns the command itself, then a part for each section of settings."""
        sections = {spec.name: spec.section for spec in settings.specs()}
        parts: dict[str, list[tuple[str, str]]] = {"": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                parts.setdefault(sections.get(str(param.name), ""), []).append(record)
        for section, records in parts.items():
            with formatter.section(f"[{section}]" if section else "Options"):
                formatter.write_dl(records)


def setting_options(command: Command) -> Command:
    """Give *command* a flag for every setting; values arrive by their `Spec.name`, unread."""
    return options_for(settings.specs())(command)


def options_for(specs: Iterable[settings.Spec]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command a flag for each of *specs*."""
    wanted = list(specs)

    def decorate(command: Command) -> Command:
        for spec in reversed(wanted):
            command = _option(spec)(command)
        return command

    return decorate


def _option(spec: settings.Spec) -> Callable[[Command], Command]:
    is_switch, is_duration = isinstance(spec.form, Flag), isinstance(spec.form, Seconds)
    return click.option(
        *spec.spellings,
        spec.name,
        default=None,
        multiple=isinstance(spec.form, Names),
        type=seconds if is_duration else None,
        metavar=None if is_switch else METAVAR if is_duration else spec.form.metavar,
        help=f"{spec.about} [{_default(spec)}]",
    )


def _default(spec: settings.Spec) -> str:
    if spec.default in (None, ()):
        return "none"
    if isinstance(spec.form, Flag):
        return "on" if spec.default else "off"
    return spec.form.toml(spec.default).strip('"')


@click.command(cls=GroupedCommand)
@setting_options
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"Read settings from here [./{settings.CONFIG_FILE}, if there is one]",
)
@click.option(
    "--ready-file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write where everything is, as JSON, once it is ready; removed at the end.",
)
@lake_view_option
@json_option
@verbose_option
def serve(
    config: Path | None,
    ready_file: Path | None,
    lake: Path | None,
    *,
    as_json: bool,
    **flags: object,
) -> None:
    """Start everything on this machine and stay until Ctrl-C.

    Without --redis-url the data lives in an embedded server, in the data directory.
    """
    loaded = settings.load(config, flags=flags)
    log.set_up(loaded.log.level, loaded.log.format)
    for sentence in settings.unknown_variables():
        _log.warning("%s", sentence)

    def on_ready(endpoints: Sequence[ServedEndpoint]) -> None:
        announce(endpoints, as_json=as_json)

    pipeline = pipeline_reader(lake)
    process.run(loaded, on_ready=on_ready, ready_path=ready_file, pipeline=pipeline)


def announce(endpoints: Sequence[ServedEndpoint], *, as_json: bool) -> None:
    """Print the endpoints; a closed stdout does not stop the process."""
    try:
        if as_json:
            emit_json(report(endpoints))
        else:
            _say_ready(endpoints)
    except BrokenPipeError:
        forget_reader()


def _say_ready(endpoints: Sequence[ServedEndpoint]) -> None:
    """Print what there is, then each command on a line of its own: no terminal wraps it."""
    emit(f"TamboMQ {tambomq.__version__} is ready. Ctrl-C stops it.\n")
    emit_table(("what", "where", "about"), [(e.name, e.address, e.about) for e in endpoints])
    emit(f"\nNext, in another terminal{_activation()}:")
    for command in (*demo_command(endpoints), *(e.try_it for e in endpoints if e.try_it)):
        emit(f"  {command}")
    for advice in (e.advice for e in endpoints if e.advice):
        text, _, command = advice.partition("\n")
        emit(f"\n{text}" + (f"\n  {command}" if command else ""))


def demo_command(endpoints: Sequence[ServedEndpoint]) -> Sequence[str]:
    """Return ``tambo demo --live`` with the addresses that it cannot guess.

    Nothing where a component is missing, or where it needs a password or a certificate too.
    """
    found = {each.name: each.address for each in endpoints}
    needs_more = any("--tls" in each.try_it or "***" in each.address for each in endpoints)
    if needs_more or not found.keys() >= _OF_DEMO.keys():
        return ()
    flags = (
        f"{flag} {found[name]}" for name, (flag, usual) in _OF_DEMO.items() if found[name] != usual
    )
    return (" \\\n    ".join(("tambo demo --live", *flags)),)


def _activation() -> str:
    """Return how to make our commands known to a shell that does not know them."""
    here = Path(sys.executable).parent
    if shutil.which("tambo") or sys.prefix == sys.base_prefix:
        return ""
    return f", after `. {shlex.quote(str(here / 'activate'))}`"
