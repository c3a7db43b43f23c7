"""A trip as a value machine: replies in, outcomes and the next round out."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import (
    QueueNotFound,
    ReplyLost,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    WrongType,
)
from tambomq.store.call import Call, Script
from tambomq.store.trip import Trip, slot_of

SCRIPT = Script("count", "return redis.call('INCR', KEYS[1])", "c0ffee")
HOME = ("10.0.0.1", 7001)
OTHER = ("10.0.0.2", 7002)


def script(key: str = "k", *, repeatable: bool = False) -> Call[Any]:
    return Call(SCRIPT, (key,), (), decode=lambda reply: reply, repeatable=repeatable)


def get(key: str = "k") -> Call[Any]:
    return Call("GET", (key,), (), decode=lambda reply: reply, repeatable=True)


def error(text: str) -> Any:
    return hiredis.ReplyError(text)


def verbs(trip: Trip) -> list[str]:
    """The commands of the next round, in order."""
    reader = hiredis.Reader(encoding="utf-8")
    reader.feed(trip.pack(list(trip.waiting))[0])
    commands = []
    while (command := reader.gets()) is not False:
        commands.append(command[0])
    return commands


def answer(trip: Trip, *replies: Any, host: str = "") -> list[int]:
    places = list(trip.waiting)
    trip.waiting = trip.arrive(places, replies, host)
    return list(trip.waiting)


def test_replies_become_outcomes_in_order() -> None:
    trip = Trip([get("a"), get("b")])
    assert answer(trip, b"1", b"2") == []
    assert trip.outcomes == [b"1", b"2"]
    assert not trip.pause


def test_an_error_of_the_decoder_is_an_outcome() -> None:
    def decode(_: object) -> None:
        raise QueueNotFound("orders")

    trip = Trip([Call("GET", ("k",), (), decode), get()])
    assert answer(trip, b"", b"2") == []
    assert isinstance(trip.outcomes[0], QueueNotFound)
    assert trip.outcomes[1] == b"2"


def test_a_forgotten_script_is_sent_with_its_source_at_once() -> None:
    trip = Trip([script()])
    assert verbs(trip) == ["EVALSHA"]
    assert answer(trip, error("NOSCRIPT No matching script.")) == [0]
    assert verbs(trip) == ["EVAL"]
    assert not trip.pause
    assert answer(trip, 1) == []
    assert trip.outcomes == [1]


def test_the_first_use_of_a_script_among_several_calls_carries_its_source() -> None:
    assert verbs(Trip([get(), script(), script(), get()])) == ["GET", "EVAL", "EVALSHA", "GET"]


def test_each_node_gets_the_source_of_its_first_use() -> None:
    trip = Trip([script("a"), script("b"), script("b")])
    nodes = trip.by_node({slot_of("a"): HOME, slot_of("b"): OTHER})
    assert nodes == {HOME: [0], OTHER: [1, 2]}
    assert trip.pack(nodes[OTHER])[0].count(b"EVAL\r\n") == 1


def test_a_call_that_moved_is_sent_to_its_new_home() -> None:
    trip = Trip([get("k")])
    assert answer(trip, error(f"MOVED {slot_of('k')} 10.0.0.2:7002")) == [0]
    assert trip.moved == {slot_of("k"): OTHER}
    assert trip.by_node(trip.moved) == {OTHER: [0]}
    assert not trip.pause


def test_a_node_that_names_no_host_means_its_own() -> None:
    trip = Trip([get("k")])
    answer(trip, error("MOVED 7629 :7002"), host="10.0.0.1")
    assert trip.moved == {7629: ("10.0.0.1", 7002)}


def test_an_ipv6_host_of_a_node_is_understood() -> None:
    trip = Trip([get("k")])
    answer(trip, error("MOVED 7629 ::1:7002"))
    assert trip.moved == {7629: ("::1", 7002)}


def test_a_call_that_is_to_be_asked_elsewhere_is_asked_there_once() -> None:
    trip = Trip([get("a"), get("b")])
    assert answer(trip, error("ASK 1 10.0.0.2:7002"), b"2") == [0]
    assert trip.by_node({}) == {OTHER: [0]}
    assert verbs(trip) == ["ASKING", "GET"]
    assert answer(trip, b"OK", error("TRYAGAIN later")) == [0]
    assert trip.by_node({}) == {None: [0]}


def test_one_that_cannot_be_asked_elsewhere_goes_home_again() -> None:
    trip = Trip([get("a")])
    answer(trip, error("ASK 1 10.0.0.2:7002"))
    assert trip.unreachable([0], StoreUnavailable("gone")) == [0]
    assert trip.by_node({}) == {None: [0]}


def test_calls_sent_on_by_several_nodes_keep_their_order() -> None:
    trip = Trip([get("a"), get("b")])
    trip.waiting = [1, 0]
    assert trip.by_node({slot_of("a"): HOME, slot_of("b"): HOME}) == {HOME: [0, 1]}


def test_a_call_without_keys_may_go_anywhere() -> None:
    trip = Trip([Call("PING", (), (), bool)])
    assert trip.by_node({1: HOME}) == {None: [0]}


def test_nodes_that_send_each_other_calls_forever_are_given_pauses() -> None:
    trip = Trip([get("k")])
    rounds = 0
    while not trip.pause:
        answer(trip, error(f"MOVED 7629 10.0.0.{1 + rounds % 2}:7001"))
        rounds += 1
        assert rounds < 10
    trip.give_up()
    assert "nodes disagree" in str(trip.outcomes[0])


@pytest.mark.parametrize(
    "text",
    [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down",
        "UNBLOCKED force unblock from blocking operation, instance state changed",
    ],
)
def test_a_server_that_is_not_ready_is_asked_again_after_a_pause(text: str) -> None:
    trip = Trip([script()])
    assert answer(trip, error(text)) == [0]
    assert trip.pause
    trip.give_up()
    assert type(trip.outcomes[0]) is StoreUnavailable
    assert str(trip.outcomes[0]) == text


@pytest.mark.parametrize(
    "text",
    [
        "READONLY You can't write against a read only replica.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "NOREPLICAS Not enough good replicas to write.",
    ],
)
def test_a_server_that_takes_no_writes_is_asked_again_after_a_pause(text: str) -> None:
    trip = Trip([script()])
    assert answer(trip, error(text)) == [0]
    assert trip.pause
    trip.give_up()
    assert type(trip.outcomes[0]) is StoreReadOnly
    assert str(trip.outcomes[0]) == text


def test_only_what_may_be_repeated_is_after_a_broken_connection() -> None:
    trip = Trip([script(), script(), script(repeatable=True), script()])
    assert answer(trip, 1) == [2]
    assert trip.pause
    assert trip.outcomes[0] == 1
    assert isinstance(trip.outcomes[1], ReplyLost)
    assert isinstance(trip.outcomes[3], ReplyLost)


def test_a_call_that_was_sent_once_never_claims_that_nothing_was_done() -> None:
    trip = Trip([get("a"), script("b")])
    answer(trip, b"1")
    assert isinstance(trip.outcomes[1], ReplyLost)
    trip = Trip([get("a")])
    answer(trip)
    trip.unreachable([0], StoreUnavailable("connection refused"))
    trip.give_up()
    assert isinstance(trip.outcomes[0], ReplyLost)
    assert "connection refused" in str(trip.outcomes[0])


def test_a_call_that_was_never_sent_says_so() -> None:
    trip = Trip([script(), get()])
    assert trip.unreachable([0, 1], StoreUnavailable("connection refused")) == [0, 1]
    assert trip.pause
    trip.give_up()
    assert [type(outcome) for outcome in trip.outcomes] == [StoreUnavailable] * 2
    assert not trip.waiting


def test_a_server_that_does_not_let_us_in_ends_the_calls() -> None:
    trip = Trip([script(), get()])
    assert trip.refused([0, 1], StoreRefused("WRONGPASS")) == []
    assert not trip.pause
    assert all(isinstance(outcome, StoreRefused) for outcome in trip.outcomes)


def test_a_lost_reply_to_asking_loses_the_call_too() -> None:
    trip = Trip([script()])
    answer(trip, error("ASK 1 10.0.0.2:7002"))
    assert answer(trip) == []
    assert isinstance(trip.outcomes[0], ReplyLost)
    trip = Trip([script()])
    answer(trip, error("ASK 1 10.0.0.2:7002"))
    assert answer(trip, b"OK") == []
    assert isinstance(trip.outcomes[0], ReplyLost)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("WRONGTYPE Operation against a key script: c0ffee", WrongType, "k"),
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull, "maxmemory"),
        ("NOAUTH Authentication required.", StoreRefused, "NOAUTH"),
        ("WRONGPASS invalid username-password pair", StoreRefused, "WRONGPASS"),
        ("NOPERM No permissions to access a key", StoreRefused, "NOPERM"),
        ("DENIED Redis is running in protected mode", StoreRefused, "DENIED"),
        ("CROSSSLOT Keys in request don't hash to the same slot", StoreError, "{tag}"),
        ("ERR unknown command 'XACKDEL'", StoreError, "unknown command"),
    ],
)
def test_an_error_reply_becomes_an_error_of_ours(
    text: str, kind: type[StoreError], words: str
) -> None:
    trip = Trip([script()])
    assert answer(trip, error(text)) == []
    assert type(trip.outcomes[0]) is kind
    assert words in str(trip.outcomes[0])


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("", 0),
        ("123456789", 12739),
        ("foo", 12182),
        ("foo{bar}zap", slot_of("bar")),
        ("{user1000}.following", slot_of("user1000")),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", slot_of("{bar")),
        ("foo{bar}{zap}", slot_of("bar")),
    ],
)
def test_the_slot_of_a_key_is_that_of_its_tag(key: str, slot: int) -> None:
    assert slot_of(key) == slot


TAGS = st.text(st.characters(codec="utf-8", exclude_characters="{}"), min_size=1)


@given(st.text(), TAGS, st.text())
def test_keys_with_the_same_tag_share_a_slot(before: str, tag: str, after: str) -> None:
    before = before.replace("{", "")
    assert slot_of(f"{before}{{{tag}}}{after}") == slot_of(f"{{{tag}}}")


@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.data(),
)
def test_any_breaks_end_with_an_outcome_for_each_call_and_repeat_none_that_may_not_be(
    repeatable: list[bool], data: st.DataObject
) -> None:
    trip = Trip([script(str(i), repeatable=may) for i, may in enumerate(repeatable)])
    sent = [0] * len(repeatable)
    for _ in range(5):
        places = list(trip.waiting)
        for place in places:
            sent[place] += 1
        arrived = data.draw(st.integers(0, len(places)))
        trip.waiting = trip.arrive(places, [b"ok"] * arrived)
        if not trip.waiting:
            break
    trip.give_up()
    for may, times, outcome in zip(repeatable, sent, trip.outcomes, strict=True):
        assert may or times == 1
        assert outcome == b"ok" or isinstance(outcome, ReplyLost)
