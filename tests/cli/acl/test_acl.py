"""``tambo acl show``: what it prints."""

from __future__ import annotations

import json

import pytest

from tambomq.cli.acl.rights import ROLES, rights_of
from tambomq.cli.main import tambo
from tests.cli.transcript import Done, call


def acl(*args: str) -> Done:
    return call(tambo, "tambo", "acl", *args, url="redis://127.0.0.1:1")


@pytest.mark.parametrize("role", ROLES)
def test_it_prints_one_command_and_comments_on_what_is_not_allowed(role: str) -> None:
    done = acl("show", role, "--user", "shop", "--queue", "orders")
    assert done.code == 0
    (rule,) = (line for line in done.out.splitlines() if not line.startswith("#"))
    assert rule == rights_of(role, queues=("orders",)).rule("shop")  # type: ignore[arg-type]
    assert "RSMQ" in done.out
    assert "ChasquiMQ" in done.out
    assert "not allowed" in done.out
    assert "ACL SETUSER shop >…" in done.out


def test_the_user_is_named_after_the_role_unless_it_is_given() -> None:
    assert "\nACL SETUSER consumer on " in acl("show", "consumer").out


def test_categories_of_commands_are_never_granted() -> None:
    for role in ROLES:
        assert "+@" not in acl("show", role).out


def test_json_has_the_rule_and_its_parts() -> None:
    args = ("--protocol", "rsmq", "--queue", "orders", "--ns", "shop")
    shown = json.loads(acl("show", "producer", *args, "--json").out)
    assert shown["user"] == shown["role"] == "producer"
    assert shown["keys"] == [
        "shop:QUEUES",
        "shop:orders",
        "shop:orders:Q",
        "shop:orders:bounds*",
        "shop:orders-dead",
        "shop:orders-dead:Q",
    ]
    assert shown["channels"] == ["shop:rt:orders"]
    assert "zadd" in shown["commands"]
    assert shown["rule"].startswith("ACL SETUSER producer on clearselectors resetkeys")
    assert list(shown["not_allowed"]) == ["rsmq"]


def test_commands_of_redis_8_are_printed_on_request_only() -> None:
    assert "xackdel" not in acl("show", "consumer").out
    assert "+xackdel" in acl("show", "consumer", "--redis8").out


def test_a_role_whose_rights_are_not_known_is_refused() -> None:
    done = acl("show", "server")
    assert done.code == 2
    assert "'server' is not one of 'producer', 'consumer', 'operator', 'pipeline'" in done.err
    assert "ACL SETUSER" not in done.out


def test_a_name_that_an_acl_cannot_spell_is_refused() -> None:
    done = acl("show", "producer", "--queue", "two words")
    assert done.code == 1
    assert "two words" in done.err
