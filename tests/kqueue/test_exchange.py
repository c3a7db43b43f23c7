"""Routes and subscriptions: random programs against a reference model, and memory bounds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue import exchange as exchange_module
from tambomq.kqueue.exchange import Exchange
from tests import profiles

peers = st.sampled_from(["ann", "bob", "cid"])
names = st.sampled_from([b"a", b"b", b"c"])


class Programs(RuleBasedStateMachine):
    """The exchange on one side, a set of pairs on the other; the empty name is all queues."""

    def __init__(self) -> None:
        super().__init__()
        self.exchange: Exchange[str] = Exchange()
        self.pairs: set[tuple[str, bytes]] = set()

    @rule(peer=peers, name=names | st.just(b""))
    def subscribe(self, peer: str, name: bytes) -> None:
        self.exchange.subscribe(peer, name)
        self.pairs.add((peer, name))

    @rule(peer=peers, name=names)
    def unsubscribe(self, peer: str, name: bytes) -> None:
        self.exchange.unsubscribe(peer, name)
        self.pairs.discard((peer, name))

    @rule(peer=peers, leaves=st.booleans())
    def end_everything(self, peer: str, leaves: bool) -> None:
        if leaves:
            self.exchange.unsubscribe_all(peer)
        else:
            self.exchange.unsubscribe(peer, b"")
        self.pairs = {pair for pair in self.pairs if pair[0] != peer}

    @rule(name=names | st.sampled_from([b"", b"unknown"]))
    def send(self, name: bytes) -> None:
        assert self.exchange.routes[name] == self._targets(name)

    @invariant()
    def everything_is_counted_and_cached_routes_are_true(self) -> None:
        assert self.exchange.count == len(self.pairs)
        for name, targets in self.exchange.routes.items():
            assert targets == self._targets(name)
            assert any(pair[1] == name for pair in self.pairs)

    @invariant()
    def equal_sets_are_one_object(self) -> None:
        found = [self.exchange.routes[name] for name in (b"", b"a", b"b", b"c")]
        for one in found:
            assert all(one is other for other in found if one == other)

    def _targets(self, name: bytes) -> set[str]:
        return {peer for peer, expected in self.pairs if expected in (name, b"")}


def test_random_programs_agree_with_the_reference_model() -> None:
    run_state_machine_as_test(
        Programs, settings=settings(max_examples=profiles.programs(), stateful_step_count=30)
    )


def test_random_programs_agree_while_stale_sets_are_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange_module, "_STALE", 0)
    test_random_programs_agree_with_the_reference_model()


def test_names_without_subscribers_are_not_stored() -> None:
    exchange: Exchange[str] = Exchange()
    exchange.subscribe("ann", b"")
    for number in range(1000):
        assert exchange.routes[b"%d" % number] == {"ann"}
    assert not exchange.routes
    assert not exchange.subscribers


def test_a_message_without_a_name_goes_to_wildcard_subscribers() -> None:
    exchange: Exchange[str] = Exchange()
    exchange.subscribe("ann", b"a")
    assert not exchange.routes[b""]
    exchange.subscribe("bob", b"")
    assert exchange.routes[b""] == {"bob"}


def test_a_change_of_one_name_keeps_the_routes_of_others() -> None:
    exchange: Exchange[str] = Exchange()
    for number in range(100):
        exchange.subscribe("ann", b"%d" % number)
        assert exchange.routes[b"%d" % number]
    exchange.subscribe("bob", b"7")
    exchange.unsubscribe("ann", b"8")
    assert set(exchange.routes) == {b"%d" % number for number in range(100)} - {b"7", b"8"}


def test_peers_that_unsubscribe_leave_no_state_behind() -> None:
    exchange: Exchange[int] = Exchange()
    exchange.subscribe(-1, b"a")
    for peer in range(2000):
        exchange.subscribe(peer, b"a")
        exchange.subscribe(peer, b"%d" % peer)
        assert exchange.routes[b"a"] == {-1, peer}
        assert exchange.routes[b"%d" % peer] == {peer}
        exchange.unsubscribe_all(peer)
    assert exchange.count == 1
    assert len(exchange.routes) <= 1
    assert len(exchange._sets) < 2 * exchange_module._STALE
    assert set(exchange._names) == set(exchange._name_bytes) == {-1}


def test_one_peer_has_a_bounded_number_of_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "MAX_SUBSCRIPTIONS", 3)
    exchange: Exchange[str] = Exchange()
    for name in (b"a", b"b", b"c", b"a"):
        exchange.subscribe("ann", name)
    with pytest.raises(RemoteProtocolError, match="more than 3 subscriptions"):
        exchange.subscribe("ann", b"d")
    exchange.subscribe("bob", b"d")
    exchange.unsubscribe("ann", b"a")
    exchange.subscribe("ann", b"d")
    assert exchange.count == 4


def test_one_peer_has_names_of_a_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "MAX_NAME_BYTES", 10)
    exchange: Exchange[str] = Exchange()
    exchange.subscribe("ann", b"12345")
    exchange.subscribe("ann", b"67890")
    with pytest.raises(RemoteProtocolError, match="10 bytes of names"):
        exchange.subscribe("ann", b"x")
    exchange.unsubscribe("ann", b"12345")
    exchange.subscribe("ann", b"x")
