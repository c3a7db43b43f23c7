"""The calls of workers, and how their replies are decoded. No server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tambomq.chasqui.decisions import DeadLettered
from tambomq.chasqui.keys import RETURNED, Keys
from tambomq.chasqui.ops import reports
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery, HandlerRun
from tambomq.chasqui.wire.envelope import decode_member
from tambomq.errors import InvalidFormat
from tambomq.store.call import Arg, Call, Script
from tambomq.store.features import Features

KEYS = Keys("q")
PLAIN = ConsumerContext(KEYS, "default", "me", Features(), 1000)
NATIVE = ConsumerContext(KEYS, "default", "me", Features(xackdel=True, idmp=True, claim=True), 1000)
RAN = HandlerRun("5-0", "job-1", "mail", 2, 1234)
LETTER = DeadLettered("unrecoverable", b"body", "no", "job-1", "mail", 2)


def script(call: Call[Any]) -> str:
    assert isinstance(call.verb, Script)
    return call.verb.source


def test_a_read_uses_claim_if_the_server_supports_it() -> None:
    plain, native = (worker_ops.read(context, 7, 5000, 300) for context in (PLAIN, NATIVE))
    head = ("XREADGROUP", "GROUP", "default", "me", "COUNT", 7, "BLOCK", 5000)
    tail = ("STREAMS", KEYS.stream, ">")
    assert plain.parts == (*head, *tail)
    assert native.parts == (*head, "CLAIM", 300, *tail)


def test_a_read_is_not_repeated_by_itself() -> None:
    # Entries of a lost reply are delivered: `recover` finds them, a second read would not.
    assert not worker_ops.read(PLAIN, 1, 0, 300).repeatable
    assert not worker_ops.claim(PLAIN, 1, 300).repeatable


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (None, []),
        ([[b"s", [[b"1-0", [b"d", b"x"]]]]], [Delivery("1-0", [b"d", b"x"], 0)]),
        ([[b"s", [[b"1-0", [b"d", b"x"], 900, 3]]]], [Delivery("1-0", [b"d", b"x"], 3)]),
        ([[b"s", [[b"1-0", None], [b"2-0", [b"d", b"y"]]]]], [Delivery("2-0", [b"d", b"y"], 0)]),
    ],
    ids=["nothing", "fresh", "claimed", "one of two was deleted"],
)
def test_a_reply_to_a_read_is_understood(reply: Any, expected: list[Delivery]) -> None:
    assert worker_ops.read(PLAIN, 1, 0, 300).decode(reply) == expected


def test_a_reply_with_claimed_entries_has_the_deliveries_of_each() -> None:
    rows = [[b"1-0", [b"d", b"x"], 400, 2], None, [b"2-0", None, 1, 1]]
    assert worker_ops.claim(PLAIN, 9, 300).decode(rows) == [Delivery("1-0", [b"d", b"x"], 2)]


@pytest.mark.parametrize("make", ["settle", "done", "retry", "bury"])
def test_settling_uses_xackdel_only_where_the_server_has_it(make: str) -> None:
    calls: dict[str, Callable[[ConsumerContext], Call[Any]]] = {
        "settle": lambda context: worker_ops.settle(context, 1, [], ["5-0", "job-1", "mail", 2, 9]),
        "done": lambda context: worker_ops.done(context, RAN, b"\xc3", 60, 1),
        "retry": lambda context: worker_ops.retry(context, RAN, b"body", 5, "why", "page", 1),
        "bury": lambda context: worker_ops.bury(context, "5-0", LETTER, 100, 1, 9),
    }
    plain, native = calls[make](PLAIN), calls[make](NATIVE)
    assert "'XACKDEL'" not in script(plain)
    assert "'XACKDEL'" in script(native)
    assert plain.args == native.args
    assert "is_owner(stream, group, consumer, entry)" in script(plain)


@pytest.mark.parametrize(
    "call",
    [
        worker_ops.settle(PLAIN, 1, [], []),
        worker_ops.done(PLAIN, RAN, b"\xc3", 60, 1),
        worker_ops.retry(PLAIN, RAN, b"body", 5, "why", "page", 1),
        worker_ops.bury(PLAIN, "5-0", LETTER, 100, 1),
        worker_ops.abort(PLAIN, "5-0", "job-1", "n", "why"),
        worker_ops.renew(PLAIN, ["5-0"]),
        worker_ops.give_back(PLAIN, [("5-0", 1)], 300),
        worker_ops.leave(PLAIN),
    ],
)
def test_calls_that_check_ownership_are_repeatable(call: Call[Any]) -> None:
    assert call.repeatable


def test_all_keys_of_a_call_belong_to_its_queue() -> None:
    calls: list[Call[Any]] = [
        worker_ops.done(PLAIN, RAN, b"\xc3", 60, 1),
        worker_ops.retry(PLAIN, RAN, b"body", 5, "why", "page", 1),
        worker_ops.bury(PLAIN, "5-0", LETTER, 100, 1),
        worker_ops.limit(KEYS, 10, 1000, 3),
        reports.set_progress(KEYS, "job-1", b"50"),
    ]
    for call in calls:
        assert call.keys
        assert all(key.startswith("{chasqui:q}:") for key in call.keys)


@pytest.mark.parametrize("dialect", ["auto", "page", "engine"])
def test_a_retry_waits_and_keeps_its_name(dialect: str) -> None:
    call = worker_ops.retry(PLAIN, RAN, b"\x94body", 500, "why", dialect, 1000)
    given, member = call.args[3:5]
    assert given == dialect
    assert call.args[-1] == 500
    assert isinstance(member, bytes)
    assert decode_member(member) == ("mail", b"\x94body")


def test_a_name_that_the_page_dialect_cannot_hold_is_not_stored_in_it() -> None:
    ran = HandlerRun("5-0", "job-1", "n" * 256, 1, 9)
    with pytest.raises(InvalidFormat, match="255"):
        worker_ops.retry(PLAIN, ran, b"\x94", 5, "why", "page", 1)
    member = worker_ops.retry(PLAIN, ran, b"\x94", 5, "why", "engine", 1).args[4]
    assert isinstance(member, bytes)
    assert decode_member(member) == ("n" * 256, b"\x94")


def test_a_refused_retry_names_the_leader() -> None:
    decode = worker_ops.retry(PLAIN, RAN, b"", 5, "", "page", 1).decode
    assert [decode(1), decode(0), decode(b"c-123")] == [True, False, "c-123"]


def test_reasons_of_any_characters_are_sent() -> None:
    call = worker_ops.retry(PLAIN, RAN, b"", 5, "caf\xe9 \udcff", "page", 1)
    assert "caf\xe9 \\udcff".encode() in call.args


def test_a_job_that_did_not_run_has_no_duration() -> None:
    ran = worker_ops.bury(PLAIN, "5-0", LETTER, 100, 1, 0)
    unrun = worker_ops.bury(PLAIN, "5-0", LETTER, 100, 1)
    assert (ran.args[-3], unrun.args[-3]) == (0, "")


def test_started_jobs_come_before_completed_ones() -> None:
    begun: list[Arg] = ["job-2", "", 1]
    ended: list[Arg] = ["5-0", "job-1", "mail", 2, 9]
    call = worker_ops.settle(PLAIN, 1800, begun, ended)
    assert call.args == ("default", "me", 1000, 1800, 1, *begun, *ended)


def test_lost_entries_are_named() -> None:
    assert worker_ops.settle(PLAIN, 1, [], []).decode([b"5-0", b"6-0"]) == ["5-0", "6-0"]
    assert worker_ops.renew(PLAIN, ["5-0"]).decode([b"5-0"]) == ["5-0"]


def test_given_back_entries_go_with_their_delivery_counts() -> None:
    call = worker_ops.give_back(PLAIN, [("5-0", 0), ("6-0", 3)], 300)
    assert call.args == ("default", "me", RETURNED, 300, "5-0", 0, "6-0", 3)


def test_without_events_the_settle_script_gets_a_cap_of_0() -> None:
    quiet = ConsumerContext(KEYS, "default", "me")
    assert quiet.events_cap == 0
    assert worker_ops.settle(quiet, 1, [], []).args[2] == 0
