"""Sends, receives, pops and peeks: the calls they make, and their decoded replies."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import (
    BatchIncomplete,
    InvalidBody,
    InvalidFormat,
    InvalidValue,
    MessageTooLong,
    QueueCorrupt,
    QueueFull,
    QueueNotFound,
    StoreFull,
    WrongType,
)
from tambomq.rsmq import Message
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import messages as message_ops
from tambomq.store.call import Script
from tests.rsmq.plans import first_round_trip, run_plan, script

KEYS = Keys("ns")
OWN = ("ns:q", "ns:q:Q")
BOUNDS = "ns:q:bounds"
ID = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
HELD = Message(ID, b"body", rc=3, fr=1, visible_at=2)


# ── send ─────────────────────────────────────────────────────────────────────


def test_sends_are_merged_into_one_call_that_knows_the_longest_body() -> None:
    calls = [message_ops.send(KEYS, "q", body, delay=2, realtime=True) for body in ("a", "bcd")]
    merged = message_ops.send_together("q", calls)
    assert (script(merged), merged.keys, merged.repeatable) == ("send", (*OWN, BOUNDS), False)
    assert merged.args == (2, 3, "ns:rt:q", 0, *calls[0].args[4:], *calls[1].args[4:])
    assert merged.decode([b"x", b"y"]) == ["x", "y"]
    with pytest.raises(MessageTooLong):
        merged.decode(2)


def test_a_send_is_one_call_with_a_suffix_of_22_letters() -> None:
    call = message_ops.send(KEYS, "q", "é")
    delay, longest, channel, first, suffix, body = call.args
    assert (script(call), call.keys) == ("send", (*OWN, BOUNDS))
    assert (delay, longest, channel, first, body) == ("", 2, "", 0, "é".encode())
    assert isinstance(suffix, str)
    assert len(suffix) == 22
    assert suffix.isascii()
    assert suffix.isalnum()


def test_a_delay_and_a_channel_are_passed_on() -> None:
    call = message_ops.send(KEYS, "q", b"x", delay=0.5, realtime=True)
    assert call.args[:3] == (0.5, 1, "ns:rt:q")


@pytest.mark.parametrize("batch", [1, 499, 500])
def test_a_batch_up_to_500_is_one_script(batch: int) -> None:
    (call,) = first_round_trip(message_ops.send_batch(KEYS, "q", ["x"] * batch))
    assert len(call.args) == 4 + 2 * batch


def test_a_larger_batch_is_one_round_trip_and_each_script_knows_its_longest_body() -> None:
    one, two = first_round_trip(message_ops.send_batch(KEYS, "q", ["x"] * 500 + ["long"]))
    assert one.args[:4] == ("", 4, "", 0)
    assert two.args[:4] == ("", 4, "", 500)
    assert two.args[5:] == (b"long",)


def test_an_empty_batch_makes_no_round_trip() -> None:
    with pytest.raises(StopIteration) as end:
        next(message_ops.send_batch(KEYS, "q", []))
    assert end.value.value == []


def test_a_batch_that_fails_in_part_lists_the_missing_ids() -> None:
    plan = message_ops.send_batch(KEYS, "q", ["x"] * 1001)
    next(plan)
    failure = StoreFull("full")
    with pytest.raises(BatchIncomplete, match="501 of 1001") as caught:
        plan.send([["one"] * 500, failure, ["three"]])
    assert caught.value.ids == ["one"] * 500 + [None] * 500 + ["three"]
    assert caught.value.__cause__ is failure


def test_a_batch_that_fails_as_a_whole_raises_the_error() -> None:
    plan = message_ops.send_batch(KEYS, "q", ["x"] * 501)
    next(plan)
    with pytest.raises(StoreFull):
        plan.send([StoreFull("full"), StoreFull("full")])


@pytest.mark.parametrize("bodies", [[], ["x"]])
def test_a_batch_checks_its_queue_and_bodies_before_anything_is_sent(bodies: list[str]) -> None:
    with pytest.raises(InvalidFormat):
        message_ops.send_batch(KEYS, "a:b", bodies)
    with pytest.raises(InvalidBody):
        message_ops.send_batch(KEYS, "q", [*bodies, 7])  # type: ignore[list-item]


def test_the_replies_of_a_send_are_decoded() -> None:
    decode = message_ops.send(KEYS, "q", b"12345").decode
    assert decode([ID.encode()]) == ID
    with pytest.raises(MessageTooLong, match="5 bytes exceeds the 3"):
        decode(3)
    with pytest.raises(QueueNotFound):
        decode(None)
    with pytest.raises(QueueCorrupt, match="delay is"):
        decode(b'delay is "abc"')
    with pytest.raises(QueueFull, match="holds 7 of 9 bytes"):
        decode([b"BOUND_REACHED", b"max_bytes", 9, 7])


def test_no_send_is_repeatable() -> None:
    assert not message_ops.send(KEYS, "q", b"").repeatable
    assert not first_round_trip(message_ops.send_batch(KEYS, "q", [b""]))[0].repeatable


# ── receive ──────────────────────────────────────────────────────────────────


def test_a_receive_is_one_call() -> None:
    call = message_ops.receive(KEYS, "q", 3, vt=0)
    assert (script(call), call.keys) == ("receive", (*OWN, "ns:q:receipts", BOUNDS))
    assert call.args[:2] == (3, 0)
    assert message_ops.receive(KEYS, "q").args[:2] == (1, "")
    assert not call.repeatable


def test_every_receive_has_its_own_token() -> None:
    calls = [message_ops.receive_one(KEYS, "q") for _ in range(100)]
    calls += first_round_trip(message_ops.receive_batch(KEYS, "q", 5000))
    assert len({call.args[-1] for call in calls}) == 110


@pytest.mark.parametrize(
    ("count", "sizes"),
    [(2, [2]), (500, [500]), (501, [500, 1]), (1500, [500, 500, 500])],
)
def test_a_large_receive_is_one_round_trip_of_several_calls(count: int, sizes: list[int]) -> None:
    assert [
        call.args[0] for call in first_round_trip(message_ops.receive_batch(KEYS, "q", count))
    ] == sizes


def test_a_receive_of_one_has_its_own_script_and_falls_back_on_damage() -> None:
    plan = message_ops.receive_batch(KEYS, "q", 1)
    (quick,) = first_round_trip(plan)
    (thorough,) = plan.send([message_ops.ReceiveResult([], 0)])
    verbs = [call.verb for call in (quick, thorough)]
    assert [verb.name for verb in verbs if isinstance(verb, Script)] == ["receive_one", "receive"]
    assert thorough.args[:2] == (1, "")


field = st.tuples(
    st.text("abcdefghij0123456789", min_size=32, max_size=32).map(str.encode),
    st.binary(),
    st.integers(1, 2**31),
    st.integers(0, 2**53),
)


@given(st.lists(field, min_size=1, unique_by=lambda each: each[0]), st.integers(1, 2**53))
def test_every_reply_of_a_receive_becomes_its_messages(fields: list[Any], until: int) -> None:
    reply = [until, *(item for each in fields for item in each)]
    result = message_ops.receive(KEYS, "q", 500).decode(reply)
    assert [(m.id.encode(), m.body, m.rc, m.fr) for m in result.messages] == fields
    assert all(m.visible_at == until for m in result.messages)


@pytest.mark.parametrize(("reply", "next_in_ms"), [(-1, None), (0, 0), (250, 250)])
def test_an_empty_receive_says_when_the_next_message_is_due(
    reply: int, next_in_ms: int | None
) -> None:
    assert message_ops.receive(KEYS, "q").decode([0, reply]) == message_ops.ReceiveResult(
        [], next_in_ms
    )


def test_messages_of_one_call_are_returned_even_if_another_failed() -> None:
    result = message_ops.ReceiveResult([HELD])
    assert run_plan(
        message_ops.receive_batch(KEYS, "q", 600), [result, StoreFull("x")]
    ).messages == [HELD]
    plan = message_ops.receive_batch(KEYS, "q", 600)
    next(plan)
    with pytest.raises(WrongType):
        plan.send([WrongType(OWN), StoreFull("x")])


def test_a_message_received_twice_in_one_round_trip_is_returned_once() -> None:
    again = Message(ID, b"body", rc=4, fr=1, visible_at=2)
    merged = run_plan(
        message_ops.receive_batch(KEYS, "q", 600, vt=0),
        [message_ops.ReceiveResult([HELD]), message_ops.ReceiveResult([again])],
    )
    assert merged.messages == [again]


def test_a_receive_is_repeated_after_ids_without_a_body() -> None:
    unfinished, found = message_ops.ReceiveResult([], 0), message_ops.ReceiveResult([HELD])
    assert (
        run_plan(message_ops.receive_batch(KEYS, "q", 1), [unfinished], [unfinished], [found])
        == found
    )
    assert run_plan(message_ops.pop(KEYS, "q"), [None], [None], [[HELD]]) == HELD


def test_the_replies_of_a_pop_are_decoded() -> None:
    (call,) = first_round_trip(message_ops.pop(KEYS, "q"))
    assert (script(call), call.keys, call.args, call.repeatable) == (
        "pop",
        (*OWN, "ns:q:receipts", BOUNDS),
        (),
        False,
    )
    assert call.decode([9, ID.encode(), b"x", 2, 5]) == [Message(ID, b"x", 2, 5, 9)]
    assert call.decode([9]) == []
    assert call.decode([0]) is None
    with pytest.raises(QueueNotFound):
        call.decode(None)


@given(
    st.binary(),
    st.binary(),
    st.binary(),
    st.floats(allow_nan=False),
    st.binary(),
    st.binary(),
)
def test_no_stored_bytes_crash_a_peek(
    id: bytes, rc: bytes, fr: bytes, score: float, why: bytes, receipt: bytes
) -> None:
    reply = [[str(score).encode(), id, b"body", rc, fr, why, receipt]]
    (seen,) = message_ops.peek(KEYS, "q", 1).decode(reply)
    assert seen.body == b"body"
    assert seen.rc >= 0
    assert seen.sent >= 0 or seen.id.startswith("-")


def test_a_peek_decodes_missing_fields() -> None:
    call = message_ops.peek(KEYS, "q", 5, first=2)
    assert (script(call), call.args, call.repeatable) == ("peek", (2, 5), True)
    assert call.decode([[b"12.7", ID.encode(), b"x", None, None, None, b"0"]]) == [
        Message(ID, b"x", 0, 0, 12, None)
    ]
    assert call.decode([[b"1", ID.encode(), b"x", b"2", b"3", b"why", b"2-abc"]]) == [
        Message(ID, b"x", 2, 3, 1, "why", "abc")
    ]


def test_numbers_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidValue):
        message_ops.receive(KEYS, "q", 0)
    with pytest.raises(InvalidValue):
        message_ops.peek(KEYS, "q", 1, first=-1)


@given(st.sampled_from(["q", "a.b_c-1"]), st.sampled_from(["rsmq", "{50%d}"]))
def test_a_receive_is_packed_as_its_words_are(queue: str, ns: str) -> None:
    call = message_ops.receive_one(Keys(ns), queue)
    assert call.packed == hiredis.pack_command(call.parts)
    assert message_ops.receive_one(Keys(ns), queue, vt=0.5).packed is None
