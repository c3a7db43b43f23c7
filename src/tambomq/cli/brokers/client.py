"""The server options that ``tambo gomq``, ``tambo kqueue`` and ``tambo demo`` share.

An option may stand before or after the subcommand; the one closer to the command wins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from tambomq.cli.output import Command, emit, visible
from tambomq.settings.types import LAST_PORT
from tambomq.store.endpoint import Tls

_META_PREFIX: Final = "tambomq.broker."


def remembered_option(*flags: str, **how: Any) -> Callable[[Command], Command]:
    """Return a decorator for an option whose value is read with `option_value`."""
    return click.option(*flags, expose_value=False, callback=_remember, **how)


def option_value(name: str, default: Any = None) -> Any:
    """Return the value of the option *name*, with underscores, on the command line."""
    return click.get_current_context().meta.get(_META_PREFIX + name, default)


def address_option(flag: str, default: str, what: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for the address of *what*, as text."""
    return remembered_option(
        flag, type=_address, metavar="HOST:PORT", help=f"Where {what} is. [{default}]"
    )


def tls_options(command: Command) -> Command:
    """Give *command* ``--tls`` and the files it may need, for `tls`."""
    for option in (
        remembered_option("--tls-key", metavar="FILE", help="The key of that certificate."),
        remembered_option("--tls-cert", metavar="FILE", help="Our certificate; implies --tls."),
        remembered_option(
            "--tls-ca", metavar="FILE", help="The CA of the server's certificate; implies --tls."
        ),
        remembered_option("--tls", is_flag=True, default=None, help="Connect with TLS."),
    ):
        command = option(command)
    return command


def tls() -> Tls | None:
    """Return the TLS settings of the command line; `None` without TLS."""
    ca, cert, key = (option_value(name) for name in ("tls_ca", "tls_cert", "tls_key"))
    if key and not cert:
        raise click.UsageError("--tls-key goes with --tls-cert")
    return Tls(ca, cert, key) if ca or cert or option_value("tls") else None


def host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of an address."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def one_line(data: bytes | str) -> str:
    """Return *data* as text that stays on its line and cannot steer a terminal."""
    text = data if isinstance(data, str) else data.decode(errors="backslashreplace")
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def emit_raw(data: bytes) -> None:
    """Print *data* and a line end: the very bytes, except on a terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        emit(one_line(data))
    else:
        click.echo(data)


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    bare = ":" not in host or (host.startswith("[") and host.endswith("]"))
    number = int(port) if port.isascii() and port.isdigit() and len(port) < len("100000") else 0
    if not host or not bare or not 0 < number <= LAST_PORT:
        raise click.BadParameter(f"{text!r}: expected host:port, such as 127.0.0.1:8000")
    return text


def _remember(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value:
        ctx.meta[f"{_META_PREFIX}{param.name}"] = value
