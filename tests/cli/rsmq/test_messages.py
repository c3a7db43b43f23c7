from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from tambomq.cli.chasqui.values import moment
from tambomq.cli.main import tambo
from tambomq.cli.rsmq.render import duration
from tambomq.cli.times import utc
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.servers.run import Server

Message = Callable[..., Done]

_BINARY = b"\xff\x00\x1b[31m"
_BASE64 = "/wAbWzMxbQ=="
_UNKNOWN_ID = "k" * 32


@pytest.fixture
def message(server: Server) -> Message:
    """``tambo rsmq message VERB -n orders`` in this process."""

    def run(verb: str, *args: str) -> Done:
        words = ("rsmq", "message", verb, "-n", "orders", *args)
        return call(tambo, "tambo", *words, url=server.url)

    return run


@pytest.fixture
def orders(rsmq: Rsmq) -> Rsmq:
    """A client of a server that has the queue ``orders``."""
    rsmq.create_queue("orders")
    return rsmq


def parsed(done: Done) -> Any:
    """The one JSON document that a command printed."""
    assert done.err == ""
    return json.loads(done.out)


# ── receive and pop ──────────────────────────────────────────────────────────


def test_received_message_is_one_object(message: Message, orders: Rsmq) -> None:
    id = orders.send_message("orders", "ü")
    got = parsed(message("receive", "--json", "-t", "60"))
    assert list(got) == ["id", "body", "rc", "fr", "sent", "visible_at"]
    assert (got["id"], got["body"], got["rc"]) == (id, "ü", 1)
    assert got["visible_at"] == got["fr"] + 60_000


def test_receive_with_a_count_prints_a_list(message: Message, orders: Rsmq) -> None:
    ids = orders.send_messages("orders", ["a", "b", "c"])
    assert [each["id"] for each in parsed(message("receive", "-c", "2", "--json"))] == ids[:2]
    assert [each["id"] for each in parsed(message("receive", "-c", "2", "--json"))] == ids[2:]


@pytest.mark.parametrize("verb", ["receive", "pop"])
def test_body_that_is_not_text_is_never_lost(message: Message, orders: Rsmq, verb: str) -> None:
    orders.send_messages("orders", [_BINARY] * 3)
    assert parsed(message(verb, "--json"))["body"] == {"base64": _BASE64}
    assert parsed(message(verb, "--json", "--base64"))["body"] == _BASE64
    assert message(verb, "--base64").out.split()[-1] == _BASE64


def test_a_table_escapes_control_characters_of_bodies(message: Message, orders: Rsmq) -> None:
    id = orders.send_message("orders", _BINARY)
    head, row = message("receive").out.splitlines()
    assert head.split() == ["id", "received", "sent", "visible", "again", "body"]
    assert row.split()[:2] == [id, "once"]
    assert "in 29 s" in row or "in 30 s" in row
    assert row.rstrip().endswith(r"\xff\x00\x1b[31m")


def test_popped_message_is_gone(message: Message, orders: Rsmq) -> None:
    orders.send_message("orders", "x")
    head, row = message("pop").out.splitlines()
    assert head.split() == ["id", "received", "sent", "body"]
    assert row.split()[-1] == "x"
    assert orders.get_queue_attributes("orders").msgs == 0


@pytest.mark.parametrize(
    ("args", "printed"),
    [
        (("receive", "--json"), "null\n"),
        (("receive", "--json", "-c", "5"), "[]\n"),
        (("pop", "--json"), "null\n"),
        (("peek", "--json"), "[]\n"),
    ],
)
def test_nothing_there_is_exit_3_and_still_a_document(
    message: Message, orders: Rsmq, args: tuple[str, ...], printed: str
) -> None:
    done = message(*args)
    assert (done.code, done.out, done.err) == (3, printed, "")


@pytest.mark.parametrize("verb", ["receive", "pop"])
def test_text_output_mentions_hidden_messages(message: Message, orders: Rsmq, verb: str) -> None:
    empty = message(verb)
    assert (empty.code, empty.out) == (3, "")
    assert empty.err == "tambo: nothing to receive on the queue orders\n"
    orders.send_message("orders", "x", delay=100)
    assert "; 1 hidden or delayed" in message(verb).err


def test_receive_waits_for_a_message(message: Message, orders: Rsmq) -> None:
    waiting: list[Done] = []
    receiver = threading.Thread(target=lambda: waiting.append(message("receive", "--wait", "200")))
    receiver.start()
    id = orders.send_message("orders", "x")
    receiver.join(60)
    assert waiting[0].out.splitlines()[1].startswith(id)


@pytest.mark.parametrize(
    ("option", "code", "error"),
    [
        (("-t", "-1"), 2, "'-1' is not a duration"),
        (("--wait", "-1"), 2, "'-1' is not a duration"),
        (("-t", "1000d"), 1, "must be between 0 and 9999999 seconds"),
    ],
)
def test_impossible_duration_is_refused(
    message: Message, orders: Rsmq, option: tuple[str, str], code: int, error: str
) -> None:
    orders.send_message("orders", "x")
    done = message("receive", *option)
    assert (done.code, done.out) == (code, "")
    assert error in done.err


# ── peek ─────────────────────────────────────────────────────────────────────


def test_peek_shows_the_state_of_each_message(message: Message, orders: Rsmq) -> None:
    hidden, visible = orders.send_messages("orders", ["a", "b"])
    orders.receive_message("orders", vt=50.0)
    delayed = orders.send_message("orders", "c", delay=100)
    found = parsed(message("peek", "--json"))
    assert [(each["id"], each["state"]) for each in found] == [
        (visible, "visible"),
        (hidden, "hidden"),
        (delayed, "delayed"),
    ]
    assert found[0]["visible_in_ms"] == 0
    assert 40_000 < found[1]["visible_in_ms"] <= 50_000
    rows = [line.split() for line in message("peek").out.splitlines()]
    assert rows[0] == ["id", "state", "visible", "received", "sent", "body"]
    assert rows[1][1:4] == ["visible", "now", "never"]
    assert rows[2][1:3] == ["hidden", "in"]


def test_peek_begins_and_ends_at_the_given_positions(message: Message, orders: Rsmq) -> None:
    ids = orders.send_messages("orders", ["a", "b", "c", "d"])
    found = parsed(message("peek", "--first", "1", "-c", "2", "--json"))
    assert [each["id"] for each in found] == ids[1:3]


def test_peek_cuts_bodies_for_people_only(message: Message, orders: Rsmq) -> None:
    orders.send_message("orders", "x" * 1000)
    assert message("peek").out.rstrip().endswith(f" {'x' * 59}…")
    assert parsed(message("peek", "--json"))[0]["body"] == "x" * 1000


def test_peek_shows_why_a_message_is_dead(message: Message, orders: Rsmq, db: redis.Redis) -> None:
    id = orders.send_message("orders", "x")
    assert "reason" not in message("peek").out
    db.hset("rsmq:orders:Q", f"{id}:why", "received 5 times")
    assert parsed(message("peek", "--json"))[0]["reason"] == "received 5 times"
    head, row = message("peek").out.splitlines()
    assert head.split()[-2:] == ["reason", "body"]
    assert "received 5 times" in row


def test_peek_shows_messages_whose_ids_hold_no_time(
    message: Message, orders: Rsmq, db: redis.Redis
) -> None:
    id = "-" * 32
    db.zadd("rsmq:orders", {id: 1})
    db.hset("rsmq:orders:Q", id, "foreign")
    assert parsed(message("peek", "--json"))[0]["sent"] is None
    assert message("peek").out.splitlines()[1].split() == [
        id,
        "visible",
        "now",
        "never",
        "-",
        "foreign",
    ]


# ── settle ───────────────────────────────────────────────────────────────────


def test_delete_reports_which_messages_existed(message: Message, orders: Rsmq) -> None:
    first, second = orders.send_messages("orders", ["a", "b"])
    done = message("delete", "-i", first, "-i", _UNKNOWN_ID)
    assert (done.code, done.out) == (3, f"deleted {first}\n")
    assert done.err == f"tambo: not on the queue orders: {_UNKNOWN_ID}\n"
    assert parsed(message("delete", "-i", second, "--json")) == {
        "queue": "orders",
        "deleted": [second],
        "missing": [],
    }
    assert orders.get_queue_attributes("orders").msgs == 0


def test_an_invalid_message_id_is_an_error(message: Message, orders: Rsmq) -> None:
    done = message("delete", "-i", "short")
    assert (done.code, done.out) == (1, "")
    assert "32 of A-Z" in done.err


def test_visibility_is_changed(message: Message, orders: Rsmq) -> None:
    id = orders.send_message("orders", "x")
    assert message("visibility", "-i", id, "-t", "600").out == f"{id} is visible in 600 s\n"
    assert orders.receive_message("orders") is None
    assert message("visibility", "-i", id, "-t", "0").out == f"{id} is visible now\n"
    assert orders.receive_message("orders") is not None


def test_visibility_of_a_deleted_message_is_exit_3(message: Message, orders: Rsmq) -> None:
    done = message("visibility", "-i", _UNKNOWN_ID, "-t", "5", "--json")
    assert (done.code, parsed(done)["changed"]) == (3, False)


# ── words ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1999, "1 s"),
        (90_000, "90 s"),
        (120_000, "2 min"),
        (36 * 3_600_000, "36 h"),
        (50 * 3_600_000, "2 d"),
    ],
)
def test_durations_are_written_with_units(ms: int, words: str) -> None:
    assert duration(ms) == words


def test_a_timestamp_beyond_any_date_is_printed_as_a_number() -> None:
    assert utc(10**20) == str(10**20)


def test_a_time_is_printed_in_utc_and_accepted_by_time_options() -> None:
    assert utc(1_896_084_000_123) == "2030-01-31T10:00:00.123Z"
    assert moment(utc(1_896_084_000_123)).timestamp() == 1_896_084_000.123
