"""``tambo access``: users of GOMQ, KqueueMsgQ and the console, their rights and their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tambomq.cli.access.target import open_users, target_options
from tambomq.cli.durations import METAVAR, positive_seconds, seconds
from tambomq.cli.output import (
    NothingThere,
    emit,
    emit_json,
    emit_table,
    example,
    json_option,
    verbose_option,
)

if TYPE_CHECKING:
    from tambomq.access.model import TokenRecord, User

Command = TypeVar("Command", bound=Callable[..., object])

_RIGHTS = ("send", "receive", "manage", "look")
_OVERLAP = "1d"


@click.group(
    epilog=example(
        "tambo access add billing --right send --queue 'gomq:orders-*' --file users.toml",
        "tambo access add nightly --right look --queue '*' --tls-identity CN:nightly",
        "tambo access list",
        "tambo access rotate billing --overlap 1h",
        "tambo access remove billing",
    )
)
def access() -> None:
    """Manage the users that may call GOMQ, KqueueMsgQ and the console.

    A running `tambo serve` uses a change within seconds.
    """


def _every_command(command: Command) -> Command:
    for option in (verbose_option, json_option, target_options):
        command = option(command)
    return command


@access.command()
@click.argument("name")
@click.option(
    "--right",
    "rights",
    multiple=True,
    required=True,
    type=click.Choice(_RIGHTS),
    help="What it may do; give it for each.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    required=True,
    metavar="PATTERN",
    help="With which queues: orders, gomq:orders-*, kqueue:*, or * for all; give it for each.",
)
@click.option(
    "--expires",
    type=positive_seconds,
    metavar=METAVAR,
    help="How long the token is valid. [for ever]",
)
@click.option(
    "--tls-identity",
    "identities",
    multiple=True,
    metavar="NAME",
    help="A name of its client certificate: CN:billing, DNS:… or URI:….",
)
@click.option("--no-token", is_flag=True, help="Give it no token: it has a certificate.")
@_every_command
def add(  # noqa: PLR0913  (each is an option of its own)
    name: str,
    rights: Sequence[Any],
    queues: Sequence[str],
    expires: float | None,
    identities: Sequence[str],
    *,
    no_token: bool,
    file: Path | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Add the user NAME, and print its token: it is shown only once."""
    from tambomq.access.edits import NewToken, added
    from tambomq.access.model import User

    if no_token and not identities:
        raise click.UsageError("a user without a token needs a --tls-identity")
    if no_token and expires:
        raise click.UsageError("--expires is for a token, and --no-token leaves that out")
    now = _now()
    token = None if no_token else NewToken(now, _after(now, expires))
    user = User(
        rights=list(dict.fromkeys(rights)),
        queues=list(dict.fromkeys(queues)),
        tls=list(dict.fromkeys(identities)),
    )
    made = open_users(file, redis_url).change(name, added(name, user, token))
    _show_change("added", name, made, token.text if token else "", as_json=as_json)


@access.command("list")
@_every_command
def show(*, file: Path | None, redis_url: str | None, as_json: bool) -> None:
    """Show all users, their rights, and when their tokens expire."""
    users, now = open_users(file, redis_url).read(), _now()
    if as_json:
        emit_json({name: _object(user, now) for name, user in sorted(users.items())})
        return
    if not users:
        raise NothingThere("there are no users: `tambo access add` makes one")
    rows = [
        (
            name,
            " ".join(user.rights),
            " ".join(user.queues),
            " ".join(user.tls),
            ", ".join(_shown(token, now) for token in user.tokens),
        )
        for name, user in sorted(users.items())
    ]
    emit_table(("user", "rights", "queues", "certificate", "tokens"), rows)


@access.command()
@click.argument("name")
@_every_command
def remove(name: str, *, file: Path | None, redis_url: str | None, as_json: bool) -> None:
    """Remove the user NAME: its tokens and certificates are refused within seconds."""
    from tambomq.access.edits import removed

    open_users(file, redis_url).change(name, removed(name))
    if as_json:
        emit_json({"user": name, "removed": True})
    else:
        emit(f"removed {name}")


@access.command()
@click.argument("name")
@click.option(
    "--expires",
    type=positive_seconds,
    metavar=METAVAR,
    help="How long the new token is valid. [for ever]",
)
@click.option(
    "--overlap",
    type=seconds,
    default=_OVERLAP,
    metavar=METAVAR,
    help="How long the old token stays valid; 0 ends it at once. [1d]",
)
@_every_command
def rotate(
    name: str,
    expires: float | None,
    overlap: float,
    *,
    file: Path | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Give the user NAME another token, and print it; the old one stays valid for a while.

    A user has two valid tokens at most: with a third, the oldest one ends at once.
    """
    from tambomq.access.edits import NewToken, rotated

    now = _now()
    token = NewToken(now, _after(now, expires))
    until = now + timedelta(seconds=overlap)
    made = open_users(file, redis_url).change(name, rotated(name, token, until))
    _show_change("rotated", name, made, token.text, as_json=as_json)


def _show_change(verb: str, name: str, user: User | None, token: str, *, as_json: bool) -> None:
    if user is None:
        return
    now = _now()
    if as_json:
        emit_json({"user": name, "token": token or None, **_object(user, now)})
        return
    emit(f"{verb} {name}: {', '.join(user.rights)} for {', '.join(user.queues)}")
    for each in user.tokens:
        emit(f"  token {_shown(each, now)}")
    if token:
        emit(f"\nIts token, which is shown only now:\n  {token}")


def _object(user: User, now: datetime) -> dict[str, Any]:
    return {
        "rights": user.rights,
        "queues": user.queues,
        "tls": user.tls,
        "tokens": [
            {
                "id": token.id,
                "created": token.created.isoformat(),
                "expires": token.expires.isoformat() if token.expires else None,
                "expired": token.is_expired(now),
            }
            for token in user.tokens
        ],
    }


def _shown(token: TokenRecord, now: datetime) -> str:
    if token.expires is None:
        return f"{token.id} (no end)"
    verb = "expired" if token.is_expired(now) else "until"
    return f"{token.id} ({verb} {token.expires.astimezone(UTC):%Y-%m-%d %H:%M} UTC)"


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _after(now: datetime, seconds_: float | None) -> datetime | None:
    return None if seconds_ is None else now + timedelta(seconds=seconds_)
