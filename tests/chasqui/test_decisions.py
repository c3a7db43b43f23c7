"""Decisions about delivered and failed jobs are those of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.chasqui.decisions import (
    MAX_DETAIL,
    DeadLettered,
    Retry,
    RetryPolicy,
    admit_delivery,
    after_failure,
)
from tambomq.chasqui.job import BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.errors import Reject, UnrecoverableError
from tambomq.failures import text_of
from tests.chasqui.vectors import Vector, table, vector, vectors

GATE: dict[str, Any] = table("attempt_gate")  # type: ignore[assignment]
PLAIN = Envelope("a", b"\x01", 1_800_000_000_000)


def no_jitter(_: int) -> int:
    return 0


def entry(envelope: Envelope, name: str = "job") -> list[bytes]:
    return [b"d", encode_envelope(envelope), b"n", name.encode()]


@pytest.mark.parametrize("row", GATE["by_previous_deliveries"] + GATE["by_wire_attempt"])
def test_the_budget_is_counted_as_the_engine_counts_it(row: dict[str, Any]) -> None:
    envelope = Envelope("a", b"\x01", 1, row["wire_attempt"])
    policy = RetryPolicy(max_attempts=GATE["max_attempts"])
    found = admit_delivery(entry(envelope), row["previous_deliveries"], policy)
    if row["outcome"] == "run":
        assert found == (envelope, "job")
    else:
        assert isinstance(found, DeadLettered)
        assert f"dlq:{found.reason}" == row["outcome"]
        assert found.attempt == row["dlq_event_attempt"]


@pytest.mark.parametrize("recorded", vectors("dlq_entry/"))
def test_a_dead_letter_keeps_what_the_engine_keeps(recorded: Vector) -> None:
    source = recorded.inputs["source_fields"]
    fields = [part for key, value in source.items() for part in (key.encode(), value)]
    policy = RetryPolicy(3, recorded.inputs["consumer_max_payload_bytes"])
    letter = admit_delivery(fields, 0, policy)
    if not isinstance(letter, DeadLettered):
        # It was run, and this is what its handler raised.
        error = ValueError() if "exhausted" in recorded.name else UnrecoverableError()
        letter = after_failure(*letter, error, policy, no_jitter)  # type: ignore[assignment]
    assert isinstance(letter, DeadLettered)
    kept = dict(zip(recorded.fields[::2], recorded.fields[1::2], strict=True))
    assert letter.payload == kept[b"d"]
    assert letter.name.encode() == kept.get(b"n", b"")
    assert letter.reason.encode() == kept[b"reason"]
    assert letter.detail.encode() == kept.get(b"detail", b"")


def test_an_entry_without_an_envelope_is_malformed() -> None:
    assert admit_delivery([b"x", b"y", b"n", b"job"], 0, RetryPolicy()) == DeadLettered(
        "malformed", b"", "missing or non-bytes payload field"
    )


def test_an_undecodable_envelope_is_kept_unchanged_without_its_name() -> None:
    assert admit_delivery([b"d", b"\xc1", b"n", b"job"], 0, RetryPolicy()) == DeadLettered(
        "decode_failed", b"\xc1"
    )


def test_a_payload_may_be_as_large_as_the_limit_and_no_larger() -> None:
    size = len(encode_envelope(PLAIN))
    assert admit_delivery(entry(PLAIN), 0, RetryPolicy(max_payload_bytes=size)) == (PLAIN, "job")
    letter = admit_delivery(entry(PLAIN), 0, RetryPolicy(max_payload_bytes=size - 1))
    assert letter == DeadLettered("oversize_payload", encode_envelope(PLAIN), name="job")


def test_size_is_checked_before_content() -> None:
    letter = admit_delivery([b"d", b"\xc1" * 10], 0, RetryPolicy(max_payload_bytes=5))
    assert isinstance(letter, DeadLettered)
    assert letter.reason == "oversize_payload"


def test_with_max_attempts_0_a_job_is_dead_lettered_without_a_run() -> None:
    letter = admit_delivery(entry(PLAIN), 0, RetryPolicy(max_attempts=0))
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.id, letter.attempt) == ("retries_exhausted", "a", 0)


@pytest.mark.parametrize(("own", "runs"), [(None, True), (3, True), (2, False), (0, False)])
def test_the_budget_of_a_job_wins_over_the_workers(own: int | None, runs: bool) -> None:
    envelope = Envelope("a", b"\x01", 1, 2, RetryOverride(own, None))
    found = admit_delivery(entry(envelope), 0, RetryPolicy(max_attempts=3))
    assert isinstance(found, tuple) is runs


def test_a_failed_job_is_retried_with_its_attempt_incremented() -> None:
    verdict = after_failure(PLAIN, "job", ValueError("x"), RetryPolicy(), no_jitter)
    assert isinstance(verdict, Retry)
    assert verdict.wait_ms == 100
    assert decode_envelope(verdict.body) == Envelope("a", b"\x01", PLAIN.created_at_ms, 1)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (None, 70),
        (BackoffSpec("fixed", 40), 40),
        (BackoffSpec("exponential", 10), 40),
        (BackoffSpec("exponential", 10, multiplier=3.0), 90),
    ],
)
def test_the_backoff_of_a_job_wins_over_the_workers(own: BackoffSpec | None, expected: int) -> None:
    envelope = Envelope("a", b"\x01", 1, 2, RetryOverride(None, own))
    policy = RetryPolicy(backoff=BackoffSpec("fixed", 70, 1000, 2.0, 0))
    verdict = after_failure(envelope, "job", ValueError(), policy, no_jitter)
    assert isinstance(verdict, Retry)
    assert verdict.wait_ms == expected
    assert decode_envelope(verdict.body).retry == envelope.retry


def test_the_last_failure_dead_letters_the_job_with_attempt_unchanged() -> None:
    envelope = Envelope("a", b"\x01", 1, 2)
    letter = after_failure(envelope, "job", ValueError("boom"), RetryPolicy(3), no_jitter)
    body = encode_envelope(envelope)
    # It was never raised, so it has no traceback.
    assert letter == DeadLettered(
        "retries_exhausted", body, "boom", "a", "job", 3, "ValueError", ""
    )


class NoSuchCustomer(UnrecoverableError):
    pass


@pytest.mark.parametrize("error", [Reject("no"), UnrecoverableError("no"), NoSuchCustomer("no")])
def test_a_verdict_of_the_handler_ends_a_job_at_once(error: Reject) -> None:
    letter = after_failure(PLAIN, "job", error, RetryPolicy(), no_jitter)
    assert isinstance(letter, DeadLettered)
    assert (letter.reason, letter.detail, letter.attempt) == ("unrecoverable", "no", 1)


def test_a_reject_on_the_last_run_is_recorded_as_unrecoverable() -> None:
    letter = after_failure(PLAIN, "job", Reject("no"), RetryPolicy(1), no_jitter)
    assert isinstance(letter, DeadLettered)
    assert letter.reason == "unrecoverable"


def test_a_long_reason_is_cut() -> None:
    letter = after_failure(PLAIN, "job", Reject("x" * 10_000), RetryPolicy(), no_jitter)
    assert isinstance(letter, DeadLettered)
    assert len(letter.detail) == MAX_DETAIL


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def test_an_error_whose_text_raises_is_named_by_its_type() -> None:
    assert text_of(Speechless()) == "Speechless"
    assert text_of(ValueError("boom")) == "boom"


def test_the_event_of_the_engine_counts_the_runs_as_we_do() -> None:
    recorded = vector("event/dlq_after_run")
    fields = dict(zip(recorded.fields[::2], recorded.fields[1::2], strict=True))
    envelope = Envelope("d1", b"\x01", 1, recorded.inputs["wire_attempt"])
    policy = RetryPolicy(recorded.inputs["max_attempts"])
    letter = after_failure(envelope, "job", ValueError(), policy, no_jitter)
    assert isinstance(letter, DeadLettered)
    assert str(letter.attempt).encode() == fields[b"attempt"]
    assert letter.reason.encode() == fields[b"reason"]
