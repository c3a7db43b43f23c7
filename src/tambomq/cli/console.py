"""``tambo console``: serves the console for any Redis, without the protocols' servers."""

from __future__ import annotations

import logging
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from tambomq import log
from tambomq.cli.lake_view import lake_view_option, pipeline_reader
from tambomq.cli.output import (
    emit,
    emit_json,
    example,
    forget_reader,
    json_option,
    verbose_option,
)
from tambomq.cli.serve import options_for
from tambomq.errors import SettingsError
from tambomq.log import mask_url
from tambomq.rsmq.keys import NAMESPACE
from tambomq.serve import process
from tambomq.serve.component import Component, ServedEndpoint
from tambomq.serve.console import ConsoleComponent, ConsoleSources, make_console
from tambomq.serve.exposure import access_options, refuse_exposed
from tambomq.serve.health import ProcessHealth
from tambomq.serve.http import HttpComponent
from tambomq.serve.ready_file import report
from tambomq.serve.store import ExternalStore
from tambomq.settings import load as settings
from tambomq.store.endpoint import URL

_log: Final = logging.getLogger(__name__)

_SHARED: Final = ("insecure", "log_level", "log_format")
_LEFT_OUT: Final = ("http_enabled", "http_console")
_WILDCARDS: Final = ("//0.0.0.0:", "//[::]:")


def _specs() -> Iterator[settings.Spec]:
    """Yield the settings of ``tambo serve`` that concern the console."""
    for spec in settings.specs():
        if spec.name == "redis_url":
            # There is no embedded server here that it would replace.
            about = "The server, or the sentinels of its primary."
            yield replace(spec, about=about, default=URL)
            continue
        is_http = spec.section == "http" and spec.name not in _LEFT_OUT
        if is_http or spec.name in _SHARED:
            yield spec


@click.command(
    epilog=example(
        "tambo console --redis-url redis://127.0.0.1:6379 --open",
        "tambo console --redis-url rediss://queues.example.com --http-read-only",
    ),
)
@options_for(_specs())
@click.option("--rsmq-ns", metavar="NAME", default=NAMESPACE, help="Namespace of RSMQ.  [rsmq]")
@click.option("--open", "opens", is_flag=True, help="Open the console in a browser.")
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
    help="Write where it is, as JSON, once it is ready; removed at the end.",
)
@lake_view_option
@json_option
@verbose_option
def console(
    rsmq_ns: str,
    lake: Path | None,
    config: Path | None,
    ready_file: Path | None,
    *,
    opens: bool,
    as_json: bool,
    **flags: object,
) -> None:
    """Serve the console for a Redis or Valkey that runs elsewhere, until Ctrl-C.

    It shows RSMQ, ChasquiMQ and GOMQ. KqueueMsgQ keeps nothing in Redis: the console of
    `tambo serve` shows it.
    """
    loaded = settings.load(config, flags=flags)
    log.set_up(loaded.log.level, loaded.log.format)
    for sentence in settings.unknown_variables():
        _log.warning("%s", sentence)
    health = ProcessHealth()
    sources = ConsoleSources(pipeline=pipeline_reader(lake, rsmq_ns), rsmq_ns=rsmq_ns)
    parts = console_components(loaded, health, sources)

    def on_ready(endpoints: Sequence[ServedEndpoint]) -> None:
        announce(endpoints, as_json=as_json)
        if opens:
            # A browser may take a while, or stay in the foreground.
            url = browser_url(endpoints)
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    process.run_components(parts, health, on_ready=on_ready, ready_path=ready_file)


def console_components(
    loaded: settings.Settings, health: ProcessHealth, sources: ConsoleSources | None = None
) -> list[Component]:
    """Return the components of the console alone. Raises `SettingsError`."""
    off = {name: replace(getattr(loaded, name), enabled=False) for name in ("gomq", "kqueue")}
    http = replace(loaded.http, enabled=True, console=True)
    refuse_exposed(replace(loaded, http=http, **off))
    access = access_options(loaded.access)
    made = make_console(http, access)
    if made is None:
        raise SettingsError(
            f"--http-host {http.host} is beyond loopback, where the console needs a token: set "
            "--http-token, or TAMBO_HTTP_TOKEN"
        )
    redis = ExternalStore(loaded.server.redis_url or URL)
    return [
        HttpComponent(http, health, console=made, is_optional=False),
        redis,
        ConsoleComponent(made, redis, replace(sources or ConsoleSources(), access=access)),
    ]


def announce(endpoints: Sequence[ServedEndpoint], *, as_json: bool) -> None:
    """Print where the console is; a closed stdout does not stop the process."""
    found = {each.name: each.address for each in endpoints}
    try:
        if as_json:
            emit_json(report(endpoints))
        else:
            emit(f"The console of {mask_url(found['redis'])} is at {found['http']}")
            emit("Ctrl-C stops it.")
    except BrokenPipeError:
        forget_reader()


def browser_url(endpoints: Sequence[ServedEndpoint]) -> str:
    """Return where a browser on this machine finds the console."""
    url = next(each.address for each in endpoints if each.name == HttpComponent.name)
    for wildcard in _WILDCARDS:
        url = url.replace(wildcard, "//localhost:")
    return url
