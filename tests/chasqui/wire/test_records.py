"""The decoder of dead letters and events: the engine's own, and invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.chasqui.job import DeadLetter, QueueEvent
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.chasqui.wire.records import read_dead_letter, read_event
from tests.chasqui.vectors import Vector, vector, vectors

ANY_FIELDS = st.lists(st.binary(max_size=8) | st.sampled_from([b"d", b"n", b"e", b"id", b"ts"]))


@pytest.mark.parametrize("recorded", vectors("dlq_entry/"))
def test_a_dead_letter_has_what_the_engine_wrote(recorded: Vector) -> None:
    wrote = {f["field"]: bytes.fromhex(f["hex"]) for f in recorded.recorded["fields"]}
    letter = read_dead_letter(b"1800000000000-0", recorded.fields)
    assert letter == DeadLetter(
        dlq_id="1800000000000-0",
        source_id=recorded.inputs["source_entry_id"],
        reason=wrote["reason"].decode(),
        detail=wrote["detail"].decode() if "detail" in wrote else None,
        payload=wrote["d"],
        name=wrote.get("n", b"").decode(),
    )


def test_a_dead_letter_is_what_the_engine_s_own_client_shows() -> None:
    shown = vector("api/peek_dlq_shape").recorded
    letter = read_dead_letter(b"1-0", vector("dlq_entry/unrecoverable").fields)
    assert sorted(letter.keys()) == shown["keys"]
    assert dict(letter) == dict(letter.items()) == shown["sample"] | {"dlq_id": "1-0"}
    assert (len(letter), letter["error_type"]) == (len(shown["keys"]), None)


@pytest.mark.parametrize("recorded", vectors("replay/"))
def test_a_replayed_job_has_attempt_0_and_keeps_its_other_fields(recorded: Vector) -> None:
    letter = read_dead_letter(b"1-0", vector(recorded.inputs["source"]).fields)
    envelope = decode_envelope(letter.payload)
    envelope.attempt = 0
    assert [b"d", encode_envelope(envelope), b"n", letter.name.encode()] == recorded.fields


def test_a_dead_letter_without_fields_is_empty() -> None:
    assert read_dead_letter(b"1-0", []) == DeadLetter("1-0", "", "", None, b"", "")


def test_a_dead_letter_s_text_may_be_anything() -> None:
    letter = read_dead_letter(b"1-0", [b"n", b"\xff", b"reason", b"new one", b"detail", b""])
    assert (letter.name, letter.reason, letter.detail) == ("\ufffd", "new one", "")


@pytest.mark.parametrize("recorded", vectors("event/"))
def test_an_event_has_what_the_engine_wrote(recorded: Vector) -> None:
    wrote = {f["field"]: f["text"] for f in recorded.recorded["fields"]}
    event = read_event(b"1800000000000-0", recorded.fields)
    assert event.event_id == "1800000000000-0"
    assert event.name == wrote.pop("e")
    assert (event.job_id or "") == wrote.pop("id")
    assert event.job_name == wrote.pop("n", "")
    numbers = {"attempt", "backoff_ms", "duration_us", "ts"}
    assert event.fields == {k: int(v) if k in numbers else v for k, v in wrote.items()}


def test_an_event_of_the_whole_queue_has_no_job() -> None:
    event = read_event(b"1-0", [b"e", b"drained", b"id", b"", b"ts", b"5"])
    assert event == QueueEvent("drained", None, "", {"ts": 5}, "1-0")


def test_counts_of_newer_events_are_numbers_and_unknown_fields_text() -> None:
    fields = [b"e", b"new", b"wait_ms", b"7", b"percent", b"50", b"count", b"2", b"prev", b"9"]
    event = read_event(b"1-0", fields)
    assert event == QueueEvent(
        "new", None, "", {"wait_ms": 7, "percent": 50, "count": 2, "prev": "9"}, "1-0"
    )


@pytest.mark.parametrize("number", ["", "-1", "1.5", "+1", " 1", "٣", "1_0", "9" * 5000])
def test_a_field_that_is_not_decimal_stays_text(number: str) -> None:
    assert read_event(b"1-0", [b"ts", number.encode()]).fields == {"ts": number}


def test_the_first_of_repeated_fields_counts() -> None:
    event = read_event(b"1-0", [b"e", b"one", b"e", b"two", b"ts", b"1", b"ts", b"2"])
    assert (event.name, event.fields) == ("one", {"ts": 1})


@given(st.binary(), ANY_FIELDS)
def test_any_fields_are_a_dead_letter_and_an_event(id: bytes, fields: list[bytes]) -> None:
    assert read_dead_letter(id, fields).dlq_id == read_event(id, fields).event_id
