"""Authentication of callers, and their options from the metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import BrokerRefused, InvalidFormat
from tambomq.gomq import GomqServer
from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.gomq.server.auth import Authenticator, Caller
from tests.servers import Server

ADDRESS = "127.0.0.1:5467"


def test_a_caller_is_known_by_its_address() -> None:
    assert Authenticator().admit(ADDRESS, {}) == Caller(ADDRESS, None, None, {})


def test_a_caller_is_known_by_the_name_it_gives() -> None:
    assert Authenticator().admit(ADDRESS, {"x-gomq-peer": "worker-1"}).peer == "worker-1"


@pytest.mark.parametrize("name", ["", "a:1", "a_b", ADDRESS, "a\nb", "\x7f", "x" * 129])
def test_an_invalid_peer_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidFormat, match="no colon"):
        Authenticator().admit(ADDRESS, {"x-gomq-peer": name})


@given(st.text())
def test_no_name_makes_the_gate_fail_in_another_way(name: str) -> None:
    try:
        caller = Authenticator().admit(ADDRESS, {"x-gomq-peer": name})
    except InvalidFormat:
        return
    assert caller.peer == name
    assert 1 <= len(name) <= 128


def test_a_peer_with_a_name_may_acknowledge() -> None:
    named = Authenticator().admit(ADDRESS, {"x-gomq-peer": "w", "x-gomq-ack": "batch"})
    assert (named.peer, named.ack) == ("w", "batch")
    assert Authenticator().admit(ADDRESS, {"x-gomq-peer": "w", "x-gomq-ack": ""}).ack == ""
    assert Authenticator().admit(ADDRESS, {"x-gomq-peer": "w"}).ack is None


def test_nothing_is_kept_for_an_address_since_it_ends_with_its_connection() -> None:
    assert Authenticator().admit(ADDRESS, {"x-gomq-ack": ""}).ack is None


@pytest.mark.parametrize(("text", "limit"), [("0", 0), ("7", 7), ("999999999", 999_999_999)])
def test_a_caller_may_say_how_many_it_wants(text: str, limit: int) -> None:
    assert Authenticator().admit(ADDRESS, {"x-gomq-max": text}).limit == limit


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "1" * 10, "1e3", " 1"])
def test_a_limit_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidFormat, match="a number"):
        Authenticator().admit(ADDRESS, {"x-gomq-max": text})


def test_with_a_token_only_callers_that_send_it_are_admitted() -> None:
    gate = Authenticator("s3cret")
    assert gate.admit(ADDRESS, {"authorization": "Bearer s3cret"}).peer == ADDRESS
    for metadata in ({}, {"authorization": "Bearer s3cre"}, {"authorization": "Bearer é"}):
        with pytest.raises(BrokerRefused, match="UNAUTHENTICATED") as caught:
            gate.admit(ADDRESS, metadata)
        assert caught.value.status == "UNAUTHENTICATED"
    assert "s3cret" not in repr(gate)


def test_an_empty_token_is_refused_instead_of_admitting_everybody(server: Server) -> None:
    with pytest.raises(InvalidFormat, match="at least one character"):
        Authenticator("")
    with pytest.raises(InvalidFormat, match="at least one character"):
        GomqServer(server.url, token="")
    with pytest.raises(InvalidFormat, match="at least one character"):
        EnvoyGomqServer(server.url, token="")


def test_the_token_is_checked_first() -> None:
    with pytest.raises(BrokerRefused):
        Authenticator("s3cret").admit(ADDRESS, {"x-gomq-peer": "", "x-gomq-max": "x"})
