"""The calls of GOMQ's message operations: keys, arguments, decoded replies. No server."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.errors import InvalidValue
from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.leave import ReapPage
from tambomq.gomq.ops.messages import DispatchResult, ObserveResult
from tambomq.store.call import Call, Script

OPTIONS = Options()


def verb(call: Call[Any]) -> str:
    """The command, or the name of the script."""
    return call.verb.name if isinstance(call.verb, Script) else str(call.verb)


def test_publishing_appends_to_the_main_queue() -> None:
    call = message_ops.push("FOO", [b"one", b"two"])
    assert call.parts == ("RPUSH", "QUEUE_FOO", b"one", b"two")


def test_publishing_to_several_keys_says_how_many_go_to_each() -> None:
    call = message_ops.push_all({"FOO": [b"one", b"two"], "BAR": [b"three"]})
    assert (verb(call), call.keys) == ("publish_all", ("QUEUE_FOO", "QUEUE_BAR"))
    assert call.args == (2, b"one", b"two", 1, b"three")


def test_a_call_that_could_take_effect_twice_is_not_repeated() -> None:
    found = ObserveResult(1, is_due=False, messages=[(b"FOO", [b"one"])])
    assert not message_ops.push("FOO", [b"one"]).repeatable
    assert not message_ops.push_all({"FOO": [b"one"]}).repeatable
    assert not message_ops.give_back("BAR", "p", found).repeatable


def test_a_popping_observe_is_not_repeated_but_a_keeping_one_is() -> None:
    assert not message_ops.observe("BAR", "p", OPTIONS).repeatable
    assert message_ops.observe_kept("BAR", "p", OPTIONS, acked="", batch="b").repeatable


def test_a_dispatch_names_the_main_queue_and_how_all_others_begin() -> None:
    call = message_ops.dispatch("FOO")
    assert verb(call) == "dispatch"
    assert call.keys == ("QUEUE_FOO", "CONSUMERS_FOO", "TALLY_FOO", "HELD")
    begin = (
        "PEERS_",
        "MESSAGES_FOO_",
        "gomq:",
        message_ops.MAX_COPIES,
        message_ops.MAX_DISPATCH_BYTES,
        "FOO",
    )
    assert call.args == (*begin, message_ops.BACKLOG_HOLD_MS, OPTIONS.max_backlog)
    assert message_ops.dispatch("FOO", observed=True, max_backlog=7).args == (*begin, 0, 7)
    assert call.decode([2, 1, 3, 0]) == DispatchResult(moved=2, left=1, peers=3)
    assert call.decode([0, 1, 3, 1]) == DispatchResult(moved=0, left=1, peers=3, is_unsettled=True)


def test_a_subscriber_is_in_all_three_sets() -> None:
    call = message_ops.subscribe("FOO", "BAR", "127.0.0.1:5467", OPTIONS)
    assert call.keys == (
        "CONSUMERS_FOO",
        "SUBSCRIPTIONS_BAR",
        "PEERS_BAR",
        "SUBSCRIBED_KEYS",
        "TALLY_FOO",
        "LASTACTION_127.0.0.1:5467",
        "UNSUBSCRIBED_FOO",
        "QUEUE_FOO",
        "HELD",
    )
    assert call.args[:3] == ("FOO", "BAR", "127.0.0.1:5467")
    assert (call.decode(1), call.decode(0), call.decode(-1)) == (True, False, None)


def test_the_reply_of_unsubscribe_says_whether_it_was_subscribed() -> None:
    call = leave_ops.unsubscribe_call("FOO", "BAR", "p", "batch")
    assert (call.keys[-1], *call.args[:3]) == ("HANDED_BAR_p", "FOO", "BAR", "batch")
    assert (call.decode(-1), call.decode(1)) == (False, True)


def test_the_last_action_is_kept_for_ten_timeouts_and_for_a_minute_at_least() -> None:
    for timeout_s, last_action_ttl_s in ((30.0, 300), (0.5, 60), (86_400, 864_000)):
        options = Options(peer_timeout_s=timeout_s)
        assert message_ops.subscribe("FOO", "BAR", "p", options).args[5] == last_action_ttl_s
        assert message_ops.observe("BAR", "p", options).args[5] == last_action_ttl_s
        assert leave_ops.reap_page("BAR", options).args[1:3] == (timeout_s, last_action_ttl_s)


@pytest.mark.parametrize(
    ("asked", "limit"), [(None, 50), (0, 0), (7, 7), (50, 50), (51, 50), (10**9, 50)]
)
def test_observe_returns_no_more_of_a_key_than_the_limit(asked: int | None, limit: int) -> None:
    assert message_ops.observe("BAR", "p", OPTIONS, limit=asked).args[2] == limit
    kept = message_ops.observe_kept("BAR", "p", OPTIONS, acked="", batch="b", limit=asked)
    assert kept.args[2] == limit


def test_both_ways_to_observe_begin_alike() -> None:
    popped = message_ops.observe("BAR", "p", OPTIONS, acked="a", turn=3)
    kept = message_ops.observe_kept("BAR", "p", OPTIONS, acked="a", batch="b", turn=3)
    assert (
        popped.keys
        == kept.keys
        == ("SUBSCRIPTIONS_BAR", "PEERS_BAR", "LASTACTION_p", "HANDED_BAR_p", "HELD")
    )
    assert (*popped.args, "b") == kept.args


def test_the_reply_of_observe_is_decoded_in_pairs() -> None:
    call = message_ops.observe("BAR", "p", OPTIONS)
    reply = [2, 1, [b"FOO", [b"one", b"two"], b"BAZ", [b"three"]]]
    messages = [(b"FOO", [b"one", b"two"]), (b"BAZ", [b"three"])]
    assert call.decode(reply) == ObserveResult(2, is_due=True, messages=messages)
    assert call.decode([0, 0, []]) == ObserveResult(0, is_due=False, messages=[])
    kept = message_ops.observe_kept("BAR", "p", OPTIONS, acked="", batch="b")
    assert kept.decode([*reply, b"older"]).batch == "older"


def test_messages_given_back_are_written_as_they_were_read() -> None:
    found = ObserveResult(
        2, is_due=False, messages=[(b"FOO", [b"one", b"two"]), (b"BAZ", [b"three"])]
    )
    call = message_ops.give_back("BAR", "p", found)
    assert call.args[:3] == ("BAR", "p", "MESSAGES_")
    assert call.args[3:] == (b"FOO", 2, b"one", b"two", b"BAZ", 1, b"three")


def test_reaping_returns_the_peers_the_cursor_and_the_keys_to_settle() -> None:
    call = leave_ops.reap_page("BAR", OPTIONS)
    assert call.decode([2, b"7", [b"FOO"]]) == ReapPage(peers=2, cursor=b"7", keys=["FOO"])


def test_names_that_are_not_utf_8_are_left_out() -> None:
    assert message_ops.names([b"FOO", b"\xff", "é".encode(), "�".encode()]) == ["FOO", "é", "�"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"peer_timeout_s": 0},
        {"peer_timeout_s": -1.0},
        {"max_message_bytes": 65_535},
        {"observe_limit": 0},
        {"observe_limit": 1001},
    ],
)
def test_options_without_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Options(**wrong)
