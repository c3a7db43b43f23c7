"""Subscriptions of a consumer: the frames of each change, and those that restore them."""

from __future__ import annotations

import pytest

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.kqueue.subscriptions import SubscriptionSet
from tests.kqueue.naive import subscribe, unsubscribe


def test_each_change_is_the_frames_to_send() -> None:
    subscriptions = SubscriptionSet()
    assert subscriptions.subscribe("a", b"b") == subscribe(b"a") + subscribe(b"b")
    assert subscriptions.unsubscribe("a") == unsubscribe(b"a")
    assert subscriptions.subscribe_all() == subscribe(b"")
    assert subscriptions.unsubscribe_all() == unsubscribe(b"")


def test_a_new_connection_restores_what_is_subscribed() -> None:
    subscriptions = SubscriptionSet()
    assert subscriptions.handshake() == b"consume"
    subscriptions.subscribe("a", "b", "c", "a")
    subscriptions.unsubscribe("b", "never subscribed")
    assert subscriptions.handshake() == b"consume" + subscribe(b"a") + subscribe(b"c")
    subscriptions.subscribe_all()
    expected = b"consume" + subscribe(b"") + subscribe(b"a") + subscribe(b"c")
    assert subscriptions.handshake() == expected
    subscriptions.unsubscribe_all()
    assert subscriptions.handshake() == b"consume"


@pytest.mark.parametrize("verb", ["subscribe", "unsubscribe"])
def test_no_queue_or_an_empty_name_is_refused_and_changes_nothing(verb: str) -> None:
    subscriptions = SubscriptionSet()
    with pytest.raises(InvalidValue, match=f"{verb}_all"):
        getattr(subscriptions, verb)()
    with pytest.raises(InvalidFormat, match=f"{verb}_all"):
        getattr(subscriptions, verb)("a", "")
    assert subscriptions.handshake() == b"consume"
