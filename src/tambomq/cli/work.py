"""``tambo work``: runs the workers that modules define, in processes that are kept alive."""

from __future__ import annotations

from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Any, Final

import click

from tambomq import log
from tambomq.cli.durations import METAVAR, seconds
from tambomq.cli.output import emit, emit_json, example, forget_reader, json_option, verbose_option
from tambomq.settings.types import LAST_PORT, Size
from tambomq.work.messages import TargetInfo
from tambomq.work.options import DRAIN_S, WorkOptions

_MEMORY: Final = Size(1 << 20, 1 << 50)
_LEVELS: Final = ("debug", "info", "warning", "error")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise click.BadParameter(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > LAST_PORT:
        raise click.BadParameter(f"{text!r} is not a port, 1 to {LAST_PORT}, or 0 for none")
    return int(text)


def _size(text: str) -> int:
    try:
        return _MEMORY.read(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not {_MEMORY}") from error


@click.command(
    epilog=example(
        "tambo work shop.jobs",
        "tambo work shop.jobs:mail shop.billing --processes 4 --http-port 8091",
        "tambo work shop.jobs --reload",
    ),
)
@click.argument("targets", metavar="MODULE[:OBJECT]...", nargs=-1, required=True)
@click.option("--processes", type=_count, metavar="N", default="1", help="Processes to run.  [1]")
@click.option(
    "--concurrency",
    type=_count,
    metavar="N",
    help="Jobs at a time, for each queue of a process.  [as the object says]",
)
@click.option(
    "--queue", "queues", metavar="NAME", multiple=True, help="Only this queue; may be repeated."
)
@click.option("--reload", is_flag=True, help="Restart, after a drain, when a module changes.")
@click.option(
    "--drain-s",
    type=seconds,
    metavar=METAVAR,
    default=str(DRAIN_S),
    help="How long jobs may finish when a process ends; then they are given back.  [30s]",
)
@click.option(
    "--max-jobs",
    type=_count,
    metavar="N",
    help="Replace a process, after a drain, that has run so many.",
)
@click.option(
    "--max-rss",
    type=_size,
    metavar="SIZE",
    help="Replace a process, after a drain, whose memory is larger: 512MiB.",
)
@click.option(
    "--http-port",
    type=_port,
    metavar="PORT",
    default="0",
    help="Serve /healthz, /livez, /readyz and /metrics there; 0 serves nothing.  [0]",
)
@click.option(
    "--http-host", metavar="HOST", default="127.0.0.1", help="Where to serve them.  [127.0.0.1]"
)
@click.option("--quiet", is_flag=True, help="Print no line for each run.")
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS),
    metavar="LEVEL",
    default="info",
    help="What goes to stderr: debug, info, warning or error.  [info]",
)
@json_option
@verbose_option
def work(max_rss: int | None, **given: Any) -> int:
    """Run the jobs and workers that modules define, until Ctrl-C.

    A MODULE is imported as Python does, from the current directory first. Of its Jobs, Worker and
    RsmqWorker objects all are run, or the one that OBJECT names.

    A process that dies is replaced. SIGTERM and Ctrl-C finish what runs; a second one gives it
    back to the queue. SIGUSR1 reads nothing more. SIGHUP replaces all processes.
    """
    # Here, so that the help does not wait for them.
    from tambomq.work.supervisor import supervisor

    options = WorkOptions(max_rss_bytes=max_rss, **given)
    log.set_up(options.log_level, "json" if options.as_json else "text")

    def on_loaded(targets: Sequence[TargetInfo], url: str | None) -> None:
        announce(options, targets, url)

    return supervisor.run(options, on_loaded)


def announce(options: WorkOptions, targets: Sequence[TargetInfo], url: str | None) -> None:
    """Print the banner; a closed stdout does not stop the work."""
    from tambomq.work.supervisor.banner import banner, banner_json

    try:
        if options.as_json:
            emit_json(banner_json(options, targets, url))
        else:
            emit(banner(options, targets, url, get_terminal_size().columns))
    except BrokenPipeError:
        forget_reader()
