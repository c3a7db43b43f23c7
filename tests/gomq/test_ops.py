"""What is asked of Redis, by looking at the calls; no server."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.errors import InvalidValue
from tambomq.gomq import leave_ops, ops
from tambomq.gomq.leave_ops import Page
from tambomq.gomq.model import Options
from tambomq.gomq.ops import Dispatched, Found
from tambomq.store.call import Call, Script

OPTIONS = Options()


def verb(call: Call[Any]) -> str:
    """The command, or the name of the script."""
    return call.verb.name if isinstance(call.verb, Script) else str(call.verb)


def test_publishing_appends_to_the_main_queue() -> None:
    call = ops.push("FOO", [b"one", b"two"])
    assert call.parts == ("RPUSH", "QUEUE_FOO", b"one", b"two")


def test_publishing_to_several_keys_says_how_many_go_to_each() -> None:
    call = ops.push_all({"FOO": [b"one", b"two"], "BAR": [b"three"]})
    assert (verb(call), call.keys) == ("publish_all", ("QUEUE_FOO", "QUEUE_BAR"))
    assert call.args == (2, b"one", b"two", 1, b"three")


def test_what_would_appear_twice_is_never_repeated_by_itself() -> None:
    found = Found(1, is_due=False, messages=[(b"FOO", [b"one"])])
    assert not ops.push("FOO", [b"one"]).repeatable
    assert not ops.push_all({"FOO": [b"one"]}).repeatable
    assert not ops.give_back("BAR", "p", found).repeatable


def test_what_is_popped_is_not_asked_for_again_but_what_is_kept_is() -> None:
    assert not ops.observe("BAR", "p", OPTIONS).repeatable
    assert ops.observe_kept("BAR", "p", OPTIONS, acked="", batch="b").repeatable


def test_a_dispatch_names_the_main_queue_and_how_all_others_begin() -> None:
    call = ops.dispatch("FOO")
    assert verb(call) == "dispatch"
    assert call.keys == ("QUEUE_FOO", "CONSUMERS_FOO", "TALLY_FOO", "HELD")
    begin = ("PEERS_", "MESSAGES_FOO_", "gomq:", ops.COPIES, ops.BYTES, "FOO")
    assert call.args == (*begin, ops.HOLD_MS, OPTIONS.max_backlog)
    assert ops.dispatch("FOO", observed=True, max_backlog=7).args == (*begin, 0, 7)
    assert call.decode([2, 1, 3, 0]) == Dispatched(moved=2, left=1, peers=3)
    assert call.decode([0, 1, 3, 1]) == Dispatched(moved=0, left=1, peers=3, is_unsettled=True)


def test_who_subscribes_stands_in_all_three_sets() -> None:
    call = ops.subscribe("FOO", "BAR", "127.0.0.1:5467", OPTIONS)
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


def test_an_unsubscription_tells_none_from_nothing_returned() -> None:
    call = leave_ops.end_subscription("FOO", "BAR", "p", "batch")
    assert (call.keys[-1], *call.args[:3]) == ("HANDED_BAR_p", "FOO", "BAR", "batch")
    assert (call.decode(-1), call.decode(1)) == (False, True)


def test_the_last_action_is_kept_for_ten_timeouts_and_for_a_minute_at_least() -> None:
    for timeout_s, keep_s in ((30.0, 300), (0.5, 60), (86_400, 864_000)):
        options = Options(peer_timeout_s=timeout_s)
        assert ops.subscribe("FOO", "BAR", "p", options).args[5] == keep_s
        assert ops.observe("BAR", "p", options).args[5] == keep_s
        assert leave_ops.reap_page("BAR", options).args[1:3] == (timeout_s, keep_s)


@pytest.mark.parametrize(
    ("asked", "most"), [(None, 50), (0, 0), (7, 7), (50, 50), (51, 50), (10**9, 50)]
)
def test_nobody_observes_more_of_a_key_than_the_servers_limit(asked: int | None, most: int) -> None:
    assert ops.observe("BAR", "p", OPTIONS, limit=asked).args[2] == most
    kept = ops.observe_kept("BAR", "p", OPTIONS, acked="", batch="b", limit=asked)
    assert kept.args[2] == most


def test_both_ways_to_observe_begin_alike() -> None:
    popped = ops.observe("BAR", "p", OPTIONS, acked="a", turn=3)
    kept = ops.observe_kept("BAR", "p", OPTIONS, acked="a", batch="b", turn=3)
    assert (
        popped.keys
        == kept.keys
        == ("SUBSCRIPTIONS_BAR", "PEERS_BAR", "LASTACTION_p", "HANDED_BAR_p", "HELD")
    )
    assert (*popped.args, "b") == kept.args


def test_what_was_found_is_read_in_pairs() -> None:
    call = ops.observe("BAR", "p", OPTIONS)
    reply = [2, 1, [b"FOO", [b"one", b"two"], b"BAZ", [b"three"]]]
    messages = [(b"FOO", [b"one", b"two"]), (b"BAZ", [b"three"])]
    assert call.decode(reply) == Found(2, is_due=True, messages=messages)
    assert call.decode([0, 0, []]) == Found(0, is_due=False, messages=[])
    kept = ops.observe_kept("BAR", "p", OPTIONS, acked="", batch="b")
    assert kept.decode([*reply, b"older"]).batch == "older"


def test_what_is_given_back_is_written_as_it_was_read() -> None:
    found = Found(2, is_due=False, messages=[(b"FOO", [b"one", b"two"]), (b"BAZ", [b"three"])])
    call = ops.give_back("BAR", "p", found)
    assert call.args[:3] == ("BAR", "p", "MESSAGES_")
    assert call.args[3:] == (b"FOO", 2, b"one", b"two", b"BAZ", 1, b"three")


def test_reaping_says_who_is_gone_where_to_go_on_and_what_to_settle() -> None:
    call = leave_ops.reap_page("BAR", OPTIONS)
    assert call.decode([2, b"7", [b"FOO"]]) == Page(peers=2, cursor=b"7", keys=["FOO"])


def test_names_that_no_caller_could_have_brought_are_left_out() -> None:
    assert ops.names([b"FOO", b"\xff", "é".encode(), "�".encode()]) == ["FOO", "é", "�"]


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
