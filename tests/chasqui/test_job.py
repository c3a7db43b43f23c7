"""Value types of jobs, backoff and dead letters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tambomq.chasqui.job import (
    U32,
    U64,
    BackoffSpec,
    DeadLetter,
    Job,
    JobCounts,
    QueueEvent,
    RetryOverride,
    backoff_spec,
    check_whole,
    retry_override,
)
from tambomq.errors import InvalidFormat, InvalidValue

LETTER = DeadLetter("5-0", "1-0", "unrecoverable", None, b"\x01", "job")


# ── backoff ──────────────────────────────────────────────────────────────────


def test_a_bare_number_is_a_fixed_backoff_in_milliseconds() -> None:
    assert backoff_spec(500) == BackoffSpec("fixed", 500)
    assert backoff_spec(0) == BackoffSpec.fixed(0)


def test_a_dict_is_the_spec_of_its_fields() -> None:
    given = {"kind": "exponential", "delay_ms": 100, "max_delay_ms": 5000, "multiplier": 3}
    assert backoff_spec(given) == BackoffSpec("exponential", 100, 5000, 3)


def test_a_backoff_spec_is_taken_as_it_is() -> None:
    spec = BackoffSpec.exponential(100, max_ms=9, jitter_ms=1)
    assert backoff_spec(spec) is spec
    assert spec == BackoffSpec("exponential", 100, 9, 2.0, 1)


def test_the_dict_of_a_spec_has_the_given_fields_and_gives_the_same_spec() -> None:
    spec = BackoffSpec.fixed(500, jitter_ms=0)
    assert spec.to_dict() == {"kind": "fixed", "delay_ms": 500, "jitter_ms": 0}
    assert backoff_spec(spec.to_dict()) == spec


@pytest.mark.parametrize(
    "backoff",
    [
        {"kind": "fixed", "delay": 5},
        {"kind": "fixed", "delay_ms": 5, "type": "x"},
        {"delay_ms": 5},
        {"kind": "fixed"},
        {},
        {1: 2},
        {"kind": "linear", "delay_ms": 5},
        {"kind": None, "delay_ms": 5},
        {"kind": "Fixed", "delay_ms": 5},
        BackoffSpec("", 5),
        "500",
        1.5,
        True,
        [500],
    ],
)
def test_an_invalid_backoff_is_refused(backoff: Any) -> None:
    with pytest.raises(InvalidFormat, match="backoff"):
        backoff_spec(backoff)


@pytest.mark.parametrize("value", [-1, 2**64, 1.5, "5", True, math.nan])
@pytest.mark.parametrize("field", ["delay_ms", "max_delay_ms", "jitter_ms"])
def test_times_of_a_backoff_are_whole_and_fit_64_bits(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=field):
        backoff_spec({"kind": "fixed", "delay_ms": 5, field: value})


@pytest.mark.parametrize("value", ["2", True, [2]])
def test_a_multiplier_is_a_number(value: Any) -> None:
    with pytest.raises(InvalidValue, match="multiplier"):
        backoff_spec({"kind": "exponential", "delay_ms": 5, "multiplier": value})


# ── retries ──────────────────────────────────────────────────────────────────


def test_without_options_a_job_has_no_retry_override() -> None:
    assert retry_override(None, None) is None


def test_attempts_and_backoff_can_be_given_separately() -> None:
    assert retry_override(3, None) == RetryOverride(3, None)
    assert retry_override(None, 7) == RetryOverride(None, BackoffSpec("fixed", 7))
    assert retry_override(0, 0) == RetryOverride(0, BackoffSpec("fixed", 0))


@pytest.mark.parametrize("attempts", [-1, U32 + 1, 1.0, "3", True, math.inf])
def test_attempts_are_whole_and_fit_32_bits(attempts: Any) -> None:
    assert retry_override(U32, None) == RetryOverride(U32)
    with pytest.raises(InvalidValue, match="attempts"):
        retry_override(attempts, None)


# ── jobs ─────────────────────────────────────────────────────────────────────


def test_the_first_run_of_a_job_is_its_first_attempt() -> None:
    job = Job("id", "name", None, 0, 5)
    assert (job.attempts_made, job.attempt) == (0, 1)


def test_jobs_of_different_owners_are_equal() -> None:
    assert Job("id", "n", [1], 0, 5, object()) == Job("id", "n", [1], 0, 5)
    for other in (
        Job("ID", "n", [1], 0, 5),
        Job("id", "N", [1], 0, 5),
        Job("id", "n", [2], 0, 5),
        Job("id", "n", [1], 1, 5),
        Job("id", "n", [1], 0, 6),
    ):
        assert other != Job("id", "n", [1], 0, 5)
    assert Job("id", "n", [1], 0, 5) != ("id", "n", [1], 0, 5)


def test_the_repr_of_a_job_has_its_fields_and_not_its_owner() -> None:
    shown = "Job(id='a', name='b', data={'c': 1}, attempts_made=2, created_at_ms=3)"
    assert repr(Job("a", "b", {"c": 1}, 2, 3, object())) == shown


def test_the_error_of_a_job_without_an_owner_says_what_it_needs() -> None:
    with pytest.raises(RuntimeError, match=r"wait_for_result needs a job returned by Queue\.add"):
        Job("a", "b", None, 0, 3).wait_for_result()
    with pytest.raises(RuntimeError, match="update_progress needs a job given to a handler"):
        Job("a", "b", None, 0, 3).update_progress(5)


def test_a_job_asks_the_queue_or_worker_it_belongs_to() -> None:
    class Home:
        def wait_for_result(self, id: str, *, timeout: float, poll_interval: float) -> Any:
            return id, timeout, poll_interval

        def update_progress(self, id: str, percent: int, name: str) -> Any:
            return id, percent, name

    job = Job("a", "b", None, 0, 3, Home())
    assert job.wait_for_result() == ("a", 30.0, 0.1)
    assert job.wait_for_result(timeout=1, poll_interval=2) == ("a", 1, 2)
    assert job.update_progress(40) == ("a", 40, "b")


# ── what is read back ────────────────────────────────────────────────────────


def test_a_dead_letter_is_also_read_as_a_dict() -> None:
    assert LETTER["reason"] == LETTER.reason == "unrecoverable"
    assert list(LETTER) == list(LETTER.keys())
    assert dict(LETTER) == {
        "dlq_id": "5-0",
        "source_id": "1-0",
        "reason": "unrecoverable",
        "detail": None,
        "payload": b"\x01",
        "name": "job",
    }
    assert LETTER["error_type"] is None
    for field in ("none", "keys", "__class__"):
        with pytest.raises(KeyError):
            LETTER[field]


@pytest.mark.parametrize(
    "value",
    [
        LETTER,
        BackoffSpec("fixed", 1),
        QueueEvent("waiting", None, "", {}),
        JobCounts(1, 2, 3, 4, 5, None, False, True),
    ],
)
def test_events_and_dead_letters_are_immutable(value: Any) -> None:
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], "x")


def test_a_number_that_is_not_whole_or_out_of_range_is_refused() -> None:
    assert check_whole("n", 0, U64) == 0
    assert check_whole("n", U64, U64) == U64
    with pytest.raises(InvalidValue, match="n must be non-negative, not -1"):
        check_whole("n", -1, U64)
    with pytest.raises(InvalidValue, match="n must be between 1 and 5, not 0"):
        check_whole("n", 0, 5, minimum=1)
    for value in ("1", 1.0, True, None):
        with pytest.raises(InvalidValue, match="n must be a whole number"):
            check_whole("n", value, 5)  # type: ignore[arg-type]
