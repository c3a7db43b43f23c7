"""Who a caller is and what it may do, without a server."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.access.decisions import EVERYTHING, Credential, Grant, UserSet
from tambomq.access.model import PROTOCOLS, RIGHTS, Right
from tambomq.errors import InvalidFormat, NotAuthenticated
from tests.access.users import NOW, user, with_token

TOKENS = st.text(max_size=300)


@pytest.mark.parametrize("right", RIGHTS)
def test_a_user_has_the_rights_it_was_given_and_no_other(right: Right) -> None:
    grant = Grant("a", [right], ["*"])
    implied = {right, "look"} if right == "manage" else {right}
    assert {each for each in RIGHTS if grant.allows(each, "gomq", "q")} == implied


@pytest.mark.parametrize(
    ("pattern", "protocol", "queue", "expected"),
    [
        ("orders", "gomq", "orders", True),
        ("orders", "gomq", "orders2", False),
        ("orders", "gomq", "my-orders", False),
        ("orders-*", "kqueue", "orders-eu", True),
        ("orders-*", "kqueue", "orders", False),
        ("gomq:orders-*", "gomq", "orders-eu", True),
        ("gomq:orders-*", "kqueue", "orders-eu", False),
        ("*:gomq:x", "rsmq", "gomq:x", True),
        ("*:gomq:x", "gomq", "x", False),
        ("order?", "rsmq", "orders", True),
        ("order[sz]", "rsmq", "orderz", True),
        ("order[sz]", "rsmq", "ordery", False),
        ("orders", "gomq", "orders\n", False),
        ("orders", "gomq", "Orders", False),
        ("a*", "gomq", "a\nb", True),
        ("a.c", "gomq", "abc", False),
    ],
)
def test_a_pattern_covers_whole_names(
    pattern: str, protocol: str, queue: str, expected: bool
) -> None:
    assert Grant("a", ["send"], [pattern]).allows("send", protocol, queue) is expected


def test_each_of_several_patterns_counts() -> None:
    grant = Grant("a", ["send"], ["gomq:a", "gomq:b*", "c"])
    allowed = [name for name in ("a", "ab", "b", "bc", "c", "d") if grant.covers("gomq", name)]
    assert allowed == ["a", "b", "bc", "c"]
    assert grant.covers("kqueue", "c")
    assert not grant.covers("kqueue", "a")
    assert grant.allows_any("send", "kqueue")
    assert not Grant("a", ["send"], ["gomq:a"]).allows_any("send", "kqueue")


def test_a_token_of_the_settings_may_do_everything() -> None:
    for right in RIGHTS:
        assert all(EVERYTHING.allows(right, protocol, "any") for protocol in PROTOCOLS)


def test_a_token_finds_its_user_and_no_other() -> None:
    first, token = with_token(user(["send"]))
    second, other = with_token(user(["look"]))
    users = UserSet({"first": first, "second": second})
    assert users.by_token(token, NOW).grant.name == "first"
    assert users.by_token(other, NOW).grant.name == "second"


def test_a_wrong_secret_of_a_known_id_is_refused() -> None:
    found, token = with_token(user(["send"]))
    users = UserSet({"a": found})
    for wrong in (token[:-1] + ("A" if token[-1] != "A" else "B"), token.upper(), token + "A"):
        with pytest.raises(NotAuthenticated, match="not valid"):
            users.by_token(wrong, NOW)


@given(TOKENS)
def test_text_that_was_not_issued_as_a_token_is_refused(text: str) -> None:
    found, _ = with_token(user(["send"]))
    with pytest.raises(NotAuthenticated):
        UserSet({"a": found}).by_token(text, NOW)


def test_a_token_ends_at_the_moment_it_expires() -> None:
    end = NOW + timedelta(hours=1)
    found, token = with_token(user(["send"]), end)
    users = UserSet({"a": found})
    assert users.by_token(token, end - timedelta(microseconds=1)).grant.name == "a"
    with pytest.raises(NotAuthenticated, match="has expired"):
        users.by_token(token, end)


def test_two_tokens_of_a_user_are_valid_at_once() -> None:
    found, old = with_token(user(["send"]), NOW + timedelta(hours=1))
    found, new = with_token(found)
    users = UserSet({"a": found})
    assert {users.by_token(each, NOW).grant.name for each in (old, new)} == {"a"}


def test_a_certificate_finds_its_user_by_any_of_its_names() -> None:
    users = UserSet({"a": user(["send"], tls=["CN:a", "URI:spiffe://x/a"]), "b": user(["look"])})
    for names in (["CN:a"], ["DNS:other", "URI:spiffe://x/a"], ["CN:a", "URI:spiffe://x/a"]):
        assert users.by_identities(names).grant.name == "a"


@pytest.mark.parametrize("names", [[], ["CN:b"], ["DNS:a"], ["cn:a"]])
def test_a_certificate_without_a_user_is_refused(names: list[str]) -> None:
    with pytest.raises(NotAuthenticated):
        UserSet({"a": user(["send"], tls=["CN:a"])}).by_identities(names)


def test_a_certificate_of_two_users_is_refused() -> None:
    users = UserSet({"a": user(["send"], tls=["CN:a"]), "b": user(["send"], tls=["DNS:b"])})
    with pytest.raises(NotAuthenticated, match="several users: a, b"):
        users.by_identities(["CN:a", "DNS:b"])


def test_an_identity_and_a_token_belong_to_one_user() -> None:
    with pytest.raises(InvalidFormat, match="stands twice"):
        UserSet({"a": user(["send"], tls=["CN:a"]), "b": user(["look"], tls=["CN:a"])})
    found, _ = with_token(user(["send"]))
    with pytest.raises(InvalidFormat, match="stands twice"):
        UserSet({"a": found, "b": found})


def test_a_credential_follows_the_changes_of_its_user() -> None:
    found, token = with_token(user(["send"]))
    credential = UserSet({"a": found}).by_token(token, NOW)
    changed = UserSet({"a": msgspec.structs.replace(found, rights=["look"])})
    assert changed.renewed(credential).grant.rights == {"look"}
    for users in (UserSet({}), UserSet({"a": user(["send"])}), UserSet({"b": found})):
        with pytest.raises(NotAuthenticated):
            users.renewed(credential)


def test_a_credential_of_the_settings_is_not_changed_by_users() -> None:
    credential = Credential(EVERYTHING, is_fixed=True)
    assert UserSet({}).renewed(credential) is credential
