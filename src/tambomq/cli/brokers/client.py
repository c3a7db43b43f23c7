"""What ``tambo gomq``, ``tambo kqueue`` and ``tambo demo`` are told about servers, and show alike.

An option may stand before or after the subcommand; what is said closer to the command wins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import click

from tambomq.cli.output import Command, emit, visible
from tambomq.forms import LAST_PORT
from tambomq.store.connect import Tls

_TOLD: Final = "tambomq.broker."


def told_option(*flags: str, **how: Any) -> Callable[[Command], Command]:
    """Make a decorator for an option whose value is asked for with `told`."""
    return click.option(*flags, expose_value=False, callback=_remember, **how)


def told(name: str, default: Any = None) -> Any:
    """Return what the command line says about *name*, an option in Python's spelling."""
    return click.get_current_context().meta.get(_TOLD + name, default)


def address_option(flag: str, default: str, what: str) -> Callable[[Command], Command]:
    """Make a decorator that lets a command be told where *what* is; it arrives as text."""
    return told_option(
        flag, type=_address, metavar="HOST:PORT", help=f"Where {what} is. [{default}]"
    )


def tls_options(command: Command) -> Command:
    """Give *command* ``--tls`` and the files it may need, for `tls`."""
    for option in (
        told_option("--tls-key", metavar="FILE", help="The key of that certificate."),
        told_option("--tls-cert", metavar="FILE", help="Our certificate; implies --tls."),
        told_option("--tls-ca", metavar="FILE", help="Who signed the server's; implies --tls."),
        told_option("--tls", is_flag=True, default=None, help="Speak TLS."),
    ):
        command = option(command)
    return command


def tls() -> Tls | None:
    """Return what the command line says about TLS; `None` if it is not spoken."""
    ca, cert, key = (told(name) for name in ("tls_ca", "tls_cert", "tls_key"))
    if key and not cert:
        raise click.UsageError("--tls-key goes with --tls-cert")
    return Tls(ca, cert, key) if ca or cert or told("tls") else None


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address that was told."""
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
        ctx.meta[f"{_TOLD}{param.name}"] = value
