"""A round trip without a socket: replies in, results and the next round out."""

from __future__ import annotations

from typing import Any

import hiredis
import msgspec
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
from tambomq.store.roundtrip import RoundTrip, slot_of

SCRIPT = Script("count", "return redis.call('INCR', KEYS[1])", "c0ffee")
HOME = ("10.0.0.1", 7001)
OTHER = ("10.0.0.2", 7002)


def script(key: str = "k", *, repeatable: bool = False) -> Call[Any]:
    return Call(SCRIPT, (key,), (), decode=lambda reply: reply, repeatable=repeatable)


def get(key: str = "k") -> Call[Any]:
    return Call("GET", (key,), (), decode=lambda reply: reply, repeatable=True)


def error(text: str) -> Any:
    return hiredis.ReplyError(text)


def verbs(round_trip: RoundTrip) -> list[str]:
    """The commands of the next round, in order."""
    reader = hiredis.Reader(encoding="utf-8")
    reader.feed(round_trip.pack(list(round_trip.pending))[0])
    commands = []
    while (command := reader.gets()) is not False:
        commands.append(command[0])
    return commands


def answer(round_trip: RoundTrip, *replies: Any, host: str = "") -> list[int]:
    indexes = list(round_trip.pending)
    round_trip.pending = round_trip.on_replies(indexes, replies, host)
    return list(round_trip.pending)


def test_replies_become_outcomes_in_order() -> None:
    round_trip = RoundTrip([get("a"), get("b")])
    assert answer(round_trip, b"1", b"2") == []
    assert round_trip.outcomes == [b"1", b"2"]
    assert not round_trip.pause


def test_an_error_of_the_decoder_is_an_outcome() -> None:
    def decode(_: object) -> None:
        raise QueueNotFound("orders")

    round_trip = RoundTrip([Call("GET", ("k",), (), decode), get()])
    assert answer(round_trip, b"", b"2") == []
    assert isinstance(round_trip.outcomes[0], QueueNotFound)
    assert round_trip.outcomes[1] == b"2"


def test_a_forgotten_script_is_sent_with_its_source_at_once() -> None:
    round_trip = RoundTrip([script()])
    assert verbs(round_trip) == ["EVALSHA"]
    assert answer(round_trip, error("NOSCRIPT No matching script.")) == [0]
    assert verbs(round_trip) == ["EVAL"]
    assert not round_trip.pause
    assert answer(round_trip, 1) == []
    assert round_trip.outcomes == [1]


def test_a_packed_script_is_sent_with_its_source_where_it_is_unknown() -> None:
    packed = hiredis.pack_command(("EVALSHA", "c0ffee", 1, "k"))
    call = msgspec.structs.replace(script(), packed=packed)
    round_trip = RoundTrip([call])
    assert round_trip.pack([0]) == (packed, 1)
    assert answer(round_trip, error("NOSCRIPT No matching script")) == [0]
    assert verbs(round_trip) == ["EVAL"]
    assert verbs(RoundTrip([call, call])) == ["EVAL", "EVALSHA"]
    get_packed = msgspec.structs.replace(get(), packed=hiredis.pack_command(("MGET", "k")))
    assert verbs(RoundTrip([get_packed], with_source=True)) == ["MGET"]


def test_the_first_use_of_a_script_among_several_calls_carries_its_source() -> None:
    assert verbs(RoundTrip([get(), script(), script(), get()])) == ["GET", "EVAL", "EVALSHA", "GET"]


def test_each_node_gets_the_source_of_its_first_use() -> None:
    round_trip = RoundTrip([script("a"), script("b"), script("b")])
    nodes = round_trip.by_node({slot_of("a"): HOME, slot_of("b"): OTHER})
    assert nodes == {HOME: [0], OTHER: [1, 2]}
    assert round_trip.pack(nodes[OTHER])[0].count(b"EVAL\r\n") == 1


def test_a_moved_redirect_is_followed() -> None:
    round_trip = RoundTrip([get("k")])
    assert answer(round_trip, error(f"MOVED {slot_of('k')} 10.0.0.2:7002")) == [0]
    assert round_trip.moved == {slot_of("k"): OTHER}
    assert round_trip.by_node(round_trip.moved) == {OTHER: [0]}
    assert not round_trip.pause


def test_a_node_that_names_no_host_means_its_own() -> None:
    round_trip = RoundTrip([get("k")])
    answer(round_trip, error("MOVED 7629 :7002"), host="10.0.0.1")
    assert round_trip.moved == {7629: ("10.0.0.1", 7002)}


def test_an_ipv6_host_of_a_node_is_understood() -> None:
    round_trip = RoundTrip([get("k")])
    answer(round_trip, error("MOVED 7629 ::1:7002"))
    assert round_trip.moved == {7629: ("::1", 7002)}


def test_an_ask_redirect_is_followed_once() -> None:
    round_trip = RoundTrip([get("a"), get("b")])
    assert answer(round_trip, error("ASK 1 10.0.0.2:7002"), b"2") == [0]
    assert round_trip.by_node({}) == {OTHER: [0]}
    assert verbs(round_trip) == ["ASKING", "GET"]
    assert answer(round_trip, b"OK", error("TRYAGAIN later")) == [0]
    assert round_trip.by_node({}) == {None: [0]}


def test_an_unreachable_ask_target_sends_the_call_back_to_its_owner() -> None:
    round_trip = RoundTrip([get("a")])
    answer(round_trip, error("ASK 1 10.0.0.2:7002"))
    assert round_trip.unreachable([0], StoreUnavailable("gone")) == [0]
    assert round_trip.by_node({}) == {None: [0]}


def test_calls_sent_on_by_several_nodes_keep_their_order() -> None:
    round_trip = RoundTrip([get("a"), get("b")])
    round_trip.pending = [1, 0]
    assert round_trip.by_node({slot_of("a"): HOME, slot_of("b"): HOME}) == {HOME: [0, 1]}


def test_a_call_without_keys_may_go_anywhere() -> None:
    round_trip = RoundTrip([Call("PING", (), (), bool)])
    assert round_trip.by_node({1: HOME}) == {None: [0]}


def test_nodes_that_send_each_other_calls_forever_are_given_pauses() -> None:
    round_trip = RoundTrip([get("k")])
    rounds = 0
    while not round_trip.pause:
        answer(round_trip, error(f"MOVED 7629 10.0.0.{1 + rounds % 2}:7001"))
        rounds += 1
        assert rounds < 10
    round_trip.give_up()
    assert "nodes disagree" in str(round_trip.outcomes[0])


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
def test_a_call_is_retried_with_a_delay_while_the_server_loads(text: str) -> None:
    round_trip = RoundTrip([script()])
    assert answer(round_trip, error(text)) == [0]
    assert round_trip.pause
    round_trip.give_up()
    assert type(round_trip.outcomes[0]) is StoreUnavailable
    assert str(round_trip.outcomes[0]) == text


@pytest.mark.parametrize(
    "text",
    [
        "READONLY You can't write against a read only replica.",
        "MISCONF Errors writing to the AOF file: No space left on device",
        "NOREPLICAS Not enough good replicas to write.",
    ],
)
def test_a_call_is_retried_with_a_delay_while_the_server_refuses_writes(text: str) -> None:
    round_trip = RoundTrip([script()])
    assert answer(round_trip, error(text)) == [0]
    assert round_trip.pause
    round_trip.give_up()
    assert type(round_trip.outcomes[0]) is StoreReadOnly
    assert str(round_trip.outcomes[0]) == text


def test_only_repeatable_calls_are_repeated_after_a_broken_connection() -> None:
    round_trip = RoundTrip([script(), script(), script(repeatable=True), script()])
    assert answer(round_trip, 1) == [2]
    assert round_trip.pause
    assert round_trip.outcomes[0] == 1
    assert isinstance(round_trip.outcomes[1], ReplyLost)
    assert isinstance(round_trip.outcomes[3], ReplyLost)


def test_a_call_that_was_sent_once_never_claims_that_nothing_was_done() -> None:
    round_trip = RoundTrip([get("a"), script("b")])
    answer(round_trip, b"1")
    assert isinstance(round_trip.outcomes[1], ReplyLost)
    round_trip = RoundTrip([get("a")])
    answer(round_trip)
    round_trip.unreachable([0], StoreUnavailable("connection refused"))
    round_trip.give_up()
    assert isinstance(round_trip.outcomes[0], ReplyLost)
    assert "connection refused" in str(round_trip.outcomes[0])


def test_a_call_that_was_never_sent_says_so() -> None:
    round_trip = RoundTrip([script(), get()])
    assert round_trip.unreachable([0, 1], StoreUnavailable("connection refused")) == [0, 1]
    assert round_trip.pause
    round_trip.give_up()
    assert [type(outcome) for outcome in round_trip.outcomes] == [StoreUnavailable] * 2
    assert not round_trip.pending


def test_a_server_that_does_not_let_us_in_ends_the_calls() -> None:
    round_trip = RoundTrip([script(), get()])
    assert round_trip.refused([0, 1], StoreRefused("WRONGPASS")) == []
    assert not round_trip.pause
    assert all(isinstance(outcome, StoreRefused) for outcome in round_trip.outcomes)


def test_a_lost_reply_to_asking_loses_the_call_too() -> None:
    round_trip = RoundTrip([script()])
    answer(round_trip, error("ASK 1 10.0.0.2:7002"))
    assert answer(round_trip) == []
    assert isinstance(round_trip.outcomes[0], ReplyLost)
    round_trip = RoundTrip([script()])
    answer(round_trip, error("ASK 1 10.0.0.2:7002"))
    assert answer(round_trip, b"OK") == []
    assert isinstance(round_trip.outcomes[0], ReplyLost)


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
def test_an_error_reply_becomes_a_tambomq_error(
    text: str, kind: type[StoreError], words: str
) -> None:
    round_trip = RoundTrip([script()])
    assert answer(round_trip, error(text)) == []
    assert type(round_trip.outcomes[0]) is kind
    assert words in str(round_trip.outcomes[0])


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
    round_trip = RoundTrip([script(str(i), repeatable=may) for i, may in enumerate(repeatable)])
    sent = [0] * len(repeatable)
    for _ in range(5):
        indexes = list(round_trip.pending)
        for index in indexes:
            sent[index] += 1
        arrived = data.draw(st.integers(0, len(indexes)))
        round_trip.pending = round_trip.on_replies(indexes, [b"ok"] * arrived)
        if not round_trip.pending:
            break
    round_trip.give_up()
    for may, times, outcome in zip(repeatable, sent, round_trip.outcomes, strict=True):
        assert may or times == 1
        assert outcome == b"ok" or isinstance(outcome, ReplyLost)


def test_a_dead_node_that_is_named_until_another_takes_over_is_no_disagreement() -> None:
    round_trip = RoundTrip([get()])
    for _ in range(10):
        assert answer(round_trip, error("MOVED 7629 10.0.0.2:7002")) == [0]
        assert not round_trip.pause
        round_trip.unreachable([0], StoreUnavailable("it died"))
        assert round_trip.pause
        round_trip.pause = False
    assert answer(round_trip, b"1") == []


def test_a_packed_script_is_resent_with_its_source() -> None:
    packed = hiredis.pack_command(("EVALSHA", SCRIPT.sha, 1, "k"))
    round_trip = RoundTrip([msgspec.structs.replace(script(), packed=packed)])
    assert round_trip.pack([0]) == (packed, 1)
    answer(round_trip, error("NOSCRIPT No matching script."))
    assert verbs(round_trip) == ["EVAL"]


def test_the_first_of_several_packed_scripts_carries_the_source() -> None:
    packed = hiredis.pack_command(("EVALSHA", SCRIPT.sha, 1, "k"))
    calls = [msgspec.structs.replace(script(), packed=packed) for _ in range(2)]
    assert verbs(RoundTrip(calls)) == ["EVAL", "EVALSHA"]
