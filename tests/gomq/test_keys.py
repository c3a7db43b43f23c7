"""Keys are spelled as on the page, and names are checked where they come in."""

from __future__ import annotations

import pytest

from tambomq.errors import InvalidFormat, LocalProtocolError
from tambomq.gomq import keys


@pytest.mark.parametrize(
    ("built", "spelled"),
    [
        (keys.consumers("FOO"), "CONSUMERS_FOO"),
        (keys.subscriptions("BAR"), "SUBSCRIPTIONS_BAR"),
        (keys.peers("BAR"), "PEERS_BAR"),
        (keys.queue("FOO"), "QUEUE_FOO"),
        (keys.messages("FOO", "BAR", "127.0.0.1:5467"), "MESSAGES_FOO_BAR_127.0.0.1:5467"),
        (keys.last_action("127.0.0.1:5467"), "LASTACTION_127.0.0.1:5467"),
        (keys.SUBSCRIBED_KEYS, "SUBSCRIBED_KEYS"),
        (keys.messages("a_b", "c_d", "[::1]:5467"), "MESSAGES_a_b_c_d_[::1]:5467"),
        (keys.queue("schlüssel 1"), "QUEUE_schlüssel 1"),
        # Ours, beside the page's.
        (keys.tally("FOO"), "TALLY_FOO"),
        (keys.handed("BAR", "127.0.0.1:5467"), "HANDED_BAR_127.0.0.1:5467"),
        (keys.channel("BAR"), "gomq:BAR"),
    ],
)
def test_a_key_is_spelled_as_on_the_page(built: str, spelled: str) -> None:
    assert built == spelled


def test_the_prefixes_for_scripts_match_the_keys() -> None:
    assert keys.messages("FOO", "BAR", "p") == f"{keys.lists('FOO')}BAR_p"
    assert keys.lists("FOO") == f"{keys.MESSAGES}FOO_"
    assert keys.queue("FOO") == f"{keys.QUEUE}FOO"
    assert keys.consumers("FOO") == f"{keys.CONSUMERS}FOO"
    assert keys.subscriptions("BAR") == f"{keys.SUBSCRIPTIONS}BAR"
    assert keys.peers("BAR") == f"{keys.PEERS}BAR"
    assert keys.last_action("p") == f"{keys.LASTACTION}p"
    assert keys.tally("FOO") == f"{keys.TALLY}FOO"
    assert keys.handed("BAR", "p") == f"{keys.HANDED}BAR_p"


@pytest.mark.parametrize("name", ["a", "_", " ", "a_b", "a b\n", "\0", "é" * 1024])
def test_a_name_may_hold_anything(name: str) -> None:
    keys.check_key(name)
    keys.check_consumer(name)


def test_an_empty_name_is_refused_and_the_error_says_which() -> None:
    with pytest.raises(InvalidFormat, match="key '' is not valid: it must not be empty"):
        keys.check_key("")
    with pytest.raises(InvalidFormat, match="consumerID '' is not valid"):
        keys.check_consumer("")


def test_a_name_beyond_all_measure_is_refused_and_not_repeated() -> None:
    with pytest.raises(LocalProtocolError, match="at most 1024 characters") as caught:
        keys.check_key("x" * 16_385)
    assert len(str(caught.value)) < 100
