"""``tambo acl``: the rights that clients need in Redis and Valkey, as their ACL spells them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tambomq.cli.acl.rights import (
    PROTOCOLS,
    PROTOCOLS_OF,
    ROLES,
    Protocol,
    Role,
    not_allowed,
    rights_of,
)
from tambomq.cli.output import emit, emit_json, example, json_option, verbose_option
from tambomq.rsmq.keys import NAMESPACE

_NAMES = {"rsmq": "RSMQ", "chasqui": "ChasquiMQ", "gomq": "GOMQ", "kqueue": "KqueueMsgQ"}


@click.group(
    epilog=example(
        "tambo acl show producer --protocol chasqui --queue mail --user shop",
        "tambo acl show consumer --queue 'orders-*' --user billing",
    )
)
def acl() -> None:
    """Show the least rights that clients need in Redis and Valkey.

    RSMQ's and ChasquiMQ's clients talk to Redis, whose own ACL decides about them. Users of GOMQ,
    KqueueMsgQ and the console are managed by `tambo access`.
    """


@acl.command()
@click.argument("role", type=click.Choice(ROLES))
@click.option("--user", metavar="NAME", help="The user's name. [that of the role]")
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    type=click.Choice(PROTOCOLS),
    help="Of which clients; give it for each. [all]",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="PATTERN",
    help="A queue's name, or a pattern with * and ?; give it for each. [all]",
)
@click.option(
    "--ns",
    default=NAMESPACE,
    show_default=True,
    metavar="NAME",
    help="RSMQ's namespace.",
)
@click.option(
    "--redis8",
    is_flag=True,
    help="For Redis 8.2 or later: with the commands that other servers do not know.",
)
@click.option(
    "--durable",
    is_flag=True,
    help="With sends that wait for disk or replicas; needs Redis 7.2 or Valkey 7.2.",
)
@json_option
@verbose_option
def show(
    role: Role,
    user: str | None,
    protocols: Sequence[Protocol],
    queues: Sequence[str],
    *,
    ns: str,
    redis8: bool,
    durable: bool,
    as_json: bool,
) -> None:
    """Print the ACL SETUSER command of a user with the least rights of ROLE.

    A producer sends; a consumer receives and runs workers; an operator runs `tambo rsmq`,
    `tambo chasqui` and `tambo explain`; a pipeline reads, moves and writes with
    Spark and `tambo pipeline`.

    It replaces the rights of a user that exists and keeps its passwords; a new user has none yet,
    and cannot log in before it has one.
    """
    user, protocols = user or role, protocols or PROTOCOLS_OF[role]
    rights = rights_of(role, protocols, queues or ("*",), ns=ns, redis8=redis8, durable=durable)
    rule = rights.rule(user)
    forbidden = {each: not_allowed(role, each) for each in protocols}
    if as_json:
        emit_json({"user": user, "role": role, "rule": rule, **_fields(rights, forbidden)})
        return
    for protocol, what in forbidden.items():
        emit(f"# {_NAMES[protocol]} {role}: not allowed {what}.")
    journals = "" if role in ("operator", "pipeline") else "journals, "
    sends = "" if durable else "durable sends to disk or replicas, "
    emit(f"# Not allowed either: {journals}{sends}other queues.")
    emit(rule)
    emit(f"# A new user needs a password before it can log in: ACL SETUSER {user} >…")


def _fields(rights: object, forbidden: dict[Protocol, str]) -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(rights)
    return {**fields, "not_allowed": forbidden}
