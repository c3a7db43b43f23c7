"""Exchanges of durable calls, with replies written by hand."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tambomq.errors import NotDurable, QueueFull, ReplyLost, StoreReadOnly
from tambomq.store.call import Call
from tambomq.store.durability.confirmation import DurableRoundTrip
from tambomq.store.durability.level import Durability
from tambomq.store.durability.waits import Wait

HERE = b"role:master\r\nmaster_replid:aaaa\r\n"
THERE = b"role:master\r\nmaster_replid:bbbb\r\n"
REPLICA = b"role:slave\r\nmaster_replid:aaaa\r\n"


def incr(key: str = "count") -> Call[int]:
    return Call("INCR", (key,), (), int)


def put(key: str = "{count}set") -> Call[int]:
    return Call("SADD", (key,), ("a",), int, repeatable=True)


def round_trip(*calls: Call[Any], replicas: int = 1) -> DurableRoundTrip:
    return DurableRoundTrip(calls, Wait(Durability(f"replicas:{replicas}", replicas)))


def words(packed: bytes) -> list[Any]:
    """The commands in *packed*."""
    reader = hiredis.Reader()
    reader.feed(packed)
    return list(iter(reader.gets, False))


def test_calls_are_sent_between_two_info_commands_and_before_wait() -> None:
    packed, due = round_trip(incr(), put()).pack((0, 1))
    info, *calls, barrier, wait, again = words(packed)
    assert info == again == [b"INFO", b"replication"]
    assert calls == [[b"INCR", b"count"], [b"SADD", b"{count}set", b"a"]]
    assert (barrier[0], barrier[3:]) == (b"EVAL", [b"count:tambo:barrier"])
    assert wait[:2] == [b"WAIT", b"1"]
    assert due == 6


def test_calls_without_keys_wait_for_nothing() -> None:
    ping = Call("PING", (), (), bytes)
    asked = round_trip(ping)
    assert asked.pack((0,)) == (hiredis.pack_command(("PING",)), 1)
    assert asked.on_replies((0,), [b"PONG"]) == []
    assert asked.outcomes == [b"PONG"]


def test_a_confirmed_call_has_its_plain_outcome() -> None:
    asked = round_trip(incr())
    assert asked.on_replies((0,), [HERE, 7, 1, 1, HERE]) == []
    assert (asked.outcomes, asked.unconfirmed) == ([7], {})


def test_too_few_replicas_are_not_taken_for_enough() -> None:
    asked = round_trip(incr(), replicas=2)
    assert asked.on_replies((0,), [HERE, 7, 1, 1, HERE]) == []
    error = asked.unconfirmed[0]
    assert (error.acknowledged, error.wanted, asked.outcomes) == (1, 2, [7])
    assert "1 of 2 replicas" in str(error)


@pytest.mark.parametrize(
    ("before", "after"), [(HERE, THERE), (HERE, REPLICA), (REPLICA, REPLICA), (b"", b"")]
)
def test_a_wait_in_another_history_confirms_nothing(before: bytes, after: bytes) -> None:
    asked = round_trip(incr(), put())
    again = asked.on_replies((0, 1), [before, 7, 1, 1, 9, after])
    assert (again, asked.pause) == ([1], True)
    assert "failover" in str(asked.unconfirmed[0])


def test_a_repeated_call_counts_once_it_is_confirmed() -> None:
    asked = round_trip(put())
    again = asked.on_replies((0,), [HERE, 1, 1, 9, THERE])
    assert asked.on_replies(again, [THERE, 0, 1, 1, THERE]) == []
    assert (asked.outcomes, asked.unconfirmed) == ([0], {})


@pytest.mark.parametrize("came", [2, 3, 4])
def test_a_connection_that_breaks_in_the_wait_confirms_nothing(came: int) -> None:
    asked = round_trip(incr())
    assert asked.on_replies((0,), [HERE, 7, 1, 1, HERE][:came]) == []
    assert "connection broke" in str(asked.unconfirmed[0])
    assert asked.outcomes == [7]


@pytest.mark.parametrize("came", [0, 1])
def test_a_connection_that_breaks_before_the_reply_leaves_the_call_in_doubt(came: int) -> None:
    asked = round_trip(incr(), put())
    assert asked.on_replies((0, 1), [HERE][:came]) == [1]
    assert isinstance(asked.outcomes[0], ReplyLost)
    assert asked.unconfirmed == {}


def test_a_call_that_was_done_once_and_never_again_is_not_durable() -> None:
    asked = round_trip(put())
    asked.pending = asked.on_replies((0,), [HERE, 1, 1])
    asked.give_up()
    assert (asked.outcomes, list(asked.unconfirmed)) == ([1], [0])


def test_a_call_that_failed_waits_for_nothing_and_is_not_called_durable() -> None:
    def full(_: Any) -> int:
        raise QueueFull("orders", 9)

    asked = round_trip(Call("XADD", ("count",), (), full))
    assert asked.on_replies((0,), [HERE, -1, 1, 0, HERE]) == []
    assert isinstance(asked.outcomes[0], QueueFull)
    assert asked.unconfirmed == {}


def test_a_write_that_is_refused_for_now_is_sent_again() -> None:
    asked = round_trip(incr())
    refusal = hiredis.ReplyError("READONLY You can't write against a read only replica.")
    assert asked.on_replies((0,), [REPLICA, refusal, refusal, refusal, REPLICA]) == [0]
    asked.pending = (0,)
    asked.give_up()
    assert isinstance(asked.outcomes[0], StoreReadOnly)


def test_a_key_in_the_place_of_the_barrier_is_left_and_confirms_nothing() -> None:
    asked = round_trip(incr())
    asked.on_replies((0,), [HERE, 7, 0, 1, HERE])
    assert "barrier" in str(asked.unconfirmed[0])


def test_a_wait_that_the_server_refuses_confirms_nothing() -> None:
    asked = round_trip(incr())
    asked.on_replies((0,), [HERE, 7, 1, hiredis.ReplyError("NOPERM WAIT"), HERE])
    error = asked.unconfirmed[0]
    assert isinstance(error, NotDurable)
    assert "NOPERM" in str(error)
