"""Invalid arguments and damaged data raise a clear error, and store nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue, Queue, QueueEvents
from tambomq.chasqui.keys import Keys
from tambomq.errors import (
    InvalidFormat,
    InvalidPayload,
    InvalidValue,
    LocalProtocolError,
    TamboError,
    WrongType,
)
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import delayed, ids, jobs
from tests.rsmq.stored import at_rest

HOUR = 3_600_000
HALF = "\ud800"
EVERY = {"kind": "every", "interval_ms": 60_000}

Use = Callable[[BlockingQueue], Any]


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def circular() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


class Odd:
    """A type that MessagePack cannot encode."""


# ── payloads ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    [
        object(),
        Odd(),
        Odd,
        len,
        1j,
        2**64,
        -(2**63) - 1,
        HALF,
        {"a": HALF},
        {HALF: 1},
        [1, {"a": [Odd()]}],
        {("a", "b"): Odd()},
        circular(),
        deep(100_000),
        range(3),
        iter([1]),
    ],
    ids=lambda data: type(data).__name__,
)
def test_data_that_messagepack_cannot_encode_is_refused(
    twin: BlockingQueue, db: redis.Redis, data: Any
) -> None:
    for use in (
        lambda: twin.add("n", data),
        lambda: twin.add("n", data, job_id="a", delay_ms=HOUR),
        lambda: twin.add_bulk([{"name": "n", "data": 1}, {"name": "n", "data": data}]),
        lambda: twin.add("n", data, repeat=EVERY),
    ):
        with pytest.raises(InvalidPayload, match="cannot be encoded"):
            use()
    assert db.dbsize() == 0


# ── names ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", ["page", "engine"])
@pytest.mark.parametrize("letter", ["n", "é"])
def test_a_name_of_256_bytes_is_taken_and_of_257_is_not(
    connect: Connect, db: redis.Redis, keys: Keys, dialect: str, letter: str
) -> None:
    queue = connect(dialect=dialect)
    longest = letter * (256 // len(letter.encode()))
    queue.add(longest, 1)
    queue.add_bulk([{"name": longest, "data": 1}])
    assert [name for name, _ in jobs(db, keys)] == [longest] * 2
    before = at_rest(db)
    for use in (
        lambda: queue.add(f"{longest}n", 1),
        lambda: queue.add(f"{longest}n", 1, delay_ms=HOUR),
        lambda: queue.add_bulk([{"name": f"{longest}n", "data": 1}]),
        lambda: queue.add(f"{longest}n", 1, repeat=EVERY),
    ):
        with pytest.raises(InvalidFormat, match=r"exceeds 256-byte cap \(got 257 bytes\)"):
            use()
    assert at_rest(db) == before


def test_a_delayed_name_of_256_bytes_is_taken_in_the_engines_dialect_only(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    page, engine = connect(dialect="page"), connect(dialect="engine")
    with pytest.raises(InvalidFormat, match="at most 255 bytes in the page dialect"):
        page.add("n" * 256, 1, delay_ms=HOUR)
    with pytest.raises(InvalidFormat, match="page dialect"):
        page.add_bulk([{"name": "n" * 256, "data": 1, "delay_ms": HOUR}])
    assert db.dbsize() == 0
    page.add("n" * 255, 1, delay_ms=HOUR)
    engine.add("n" * 255, 1, delay_ms=2 * HOUR)
    engine.add("n" * 256, 1, delay_ms=3 * HOUR)
    assert [len(name) for name, *_ in delayed(db, keys)] == [255, 255, 256]


@pytest.mark.parametrize("name", [None, 7, b"n", HALF, ["n"], True])
def test_a_name_is_text(twin: BlockingQueue, db: redis.Redis, name: Any) -> None:
    for options in ({}, {"delay_ms": HOUR}, {"repeat": EVERY}):
        with pytest.raises(InvalidFormat, match="job name"):
            twin.add(name, 1, **options)
    assert db.dbsize() == 0


# ── ids ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("id", ["", " ", "\n\t", "\u2003", 7, b"id", HALF, ["a"], True, 1.5])
def test_an_id_is_text_that_is_not_blank(twin: BlockingQueue, db: redis.Redis, id: Any) -> None:
    for use in (
        lambda: twin.add("n", 1, job_id=id),
        lambda: twin.add("n", 1, job_id=id, delay_ms=HOUR),
        lambda: twin.add_unique("n", 1, job_id=id),
        lambda: twin.add("n", 1, job_id=id, repeat=EVERY),
        lambda: twin.cancel_delayed(id),
        lambda: twin.cancel_delayed_bulk(["a", id]),
        lambda: twin.get_job_result(id),
    ):
        with pytest.raises(InvalidFormat, match="job_id"):
            use()
    assert db.dbsize() == 0


@pytest.mark.parametrize("id", ["{x}", "}", "two\nlines", "a b", "*", ":stream", "ñ✓", "\0"])
def test_an_id_may_have_odd_characters(
    connect: Connect, db: redis.Redis, keys: Keys, id: str
) -> None:
    window, strict = connect(), connect(dedup="strict")
    for queue in (window, window, strict, strict):
        queue.add("n", 1, job_id=id)
    assert ids(db, keys) == [id, id]
    window.add("n", 1, job_id=id, delay_ms=HOUR)
    assert strict.cancel_delayed(id) is True


# ── delays ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "delay_ms",
    [
        -1,
        -0.5,
        2**64,
        1e30,
        math.inf,
        -math.inf,
        math.nan,
        True,
        False,
        "5",
        b"5",
        [5],
        timedelta(1),
    ],
)
def test_a_delay_is_a_number_that_is_not_negative(
    twin: BlockingQueue, db: redis.Redis, delay_ms: Any
) -> None:
    for use in (
        lambda: twin.add("n", 1, delay_ms=delay_ms),
        lambda: twin.add("n", 1, delay_ms=delay_ms, job_id="a"),
        lambda: twin.add_bulk([{"name": "n", "data": 1, "delay_ms": delay_ms}]),
    ):
        with pytest.raises(LocalProtocolError, match="delay"):
            use()
    assert db.dbsize() == 0


@pytest.mark.parametrize("delay", [5, 1.5, "1h", -timedelta(seconds=1), True])
def test_a_delay_may_be_a_timedelta_that_is_not_negative(
    twin: BlockingQueue, db: redis.Redis, delay: Any
) -> None:
    with pytest.raises(LocalProtocolError, match="delay"):
        twin.add("n", 1, delay=delay)
    assert db.dbsize() == 0


def test_a_delay_is_given_once(twin: BlockingQueue, db: redis.Redis) -> None:
    with pytest.raises(InvalidValue, match="delay must be left out where delay_ms is given"):
        twin.add("n", 1, delay_ms=5, delay=timedelta(seconds=5))
    assert db.dbsize() == 0


def test_a_delay_beyond_the_longest_is_refused(twin: BlockingQueue, db: redis.Redis) -> None:
    for delay in (timedelta(days=31), timedelta.max):
        with pytest.raises(InvalidValue, match="max_delay_secs 2592000s"):
            twin.add("n", 1, delay=delay)
    with pytest.raises(InvalidValue, match="max_delay_secs"):
        twin.add("n", 1, delay_ms=datetime(9999, 1, 1))  # noqa: DTZ001  (naive is UTC)
    assert db.dbsize() == 0


def test_without_a_longest_delay_any_64_bit_delay_is_accepted(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    endless = connect(max_delay_secs=0)
    with pytest.raises(InvalidValue, match="delay_ms"):
        endless.add("n", 1, delay_ms=2**64, job_id="too long")
    assert db.dbsize() == 0
    endless.add("n", 1, delay_ms=2**64 - 1, job_id="for ever")
    assert db.zcard(keys.delayed) == 1
    assert endless.cancel_delayed("for ever") is True


# ── retries ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("attempts", [-1, 2**32, 1.0, "3", True, math.nan])
def test_attempts_are_whole_and_fit_32_bits(
    twin: BlockingQueue, db: redis.Redis, attempts: Any
) -> None:
    for use in (
        lambda: twin.add("n", 1, attempts=attempts),
        lambda: twin.add_bulk([{"name": "n", "data": 1, "attempts": attempts}]),
        lambda: twin.add("n", 1, attempts=attempts, repeat=EVERY),
    ):
        with pytest.raises(InvalidValue, match="attempts"):
            use()
    assert db.dbsize() == 0


@pytest.mark.parametrize(
    "backoff",
    [
        -1,
        2**64,
        1.5,
        "500",
        True,
        {},
        {"kind": "linear", "delay_ms": 5},
        {"kind": "fixed", "delay": 5},
        {"kind": "fixed", "delay_ms": 5, "max": 9},
        {"kind": "fixed", "delay_ms": 5, "jitter_ms": -1},
        {"kind": "exponential", "delay_ms": 5, "multiplier": "2"},
    ],
)
def test_a_backoff_that_means_nothing_is_refused(
    twin: BlockingQueue, db: redis.Redis, backoff: Any
) -> None:
    for use in (
        lambda: twin.add("n", 1, backoff=backoff),
        lambda: twin.add_bulk([{"name": "n", "data": 1, "backoff": backoff}]),
    ):
        with pytest.raises(LocalProtocolError):
            use()
    assert db.dbsize() == 0


# ── queues ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["", None, 7, b"q", HALF])
def test_a_queue_has_a_name(name: Any) -> None:
    for make in (BlockingQueue, Queue, QueueEvents):
        with pytest.raises(InvalidFormat, match="queue name"):
            make(name)


@pytest.mark.parametrize(
    "options",
    [
        {"dialect": "other"},
        {"dedup": "none"},
        {"overflow": "drop"},
        {"max_stream_len": 0},
        {"max_stream_len": 1.5},
        {"max_stream_len": True},
        {"max_delay_secs": -1},
        {"max_delay_secs": "60"},
        {"dedup_ttl_secs": 0},
        {"dedup_ttl_secs": 2**32},
    ],
)
def test_options_of_a_queue_are_checked_before_it_connects(options: dict[str, Any]) -> None:
    for make in (BlockingQueue, Queue):
        with pytest.raises(LocalProtocolError):
            make("q", redis_url="redis://127.0.0.1:1", **options)


# ── keys of another type ─────────────────────────────────────────────────────


USES: dict[str, tuple[Callable[[Keys], str], Use]] = {
    "add": (lambda keys: keys.stream, lambda q: q.add("n", 1)),
    "add keyed": (lambda keys: keys.stream, lambda q: q.add("n", 1, job_id="a")),
    "add_bulk": (lambda keys: keys.stream, lambda q: q.add_bulk([{"name": "n", "data": 1}] * 2)),
    "delay": (lambda keys: keys.delayed, lambda q: q.add("n", 1, delay_ms=HOUR)),
    "delay keyed": (lambda keys: keys.delayed, lambda q: q.add("n", 1, delay_ms=9, job_id="a")),
    "led": (lambda keys: keys.promoter_lock, lambda q: q.add("n", 1, delay_ms=HOUR)),
    "cancel": (lambda keys: keys.index("a"), lambda q: q.cancel_delayed("a")),
    "result": (lambda keys: keys.result("a"), lambda q: q.get_job_result("a")),
    "progress": (lambda keys: keys.progress("a"), lambda q: q.get_progress("a")),
    "peek": (lambda keys: keys.dlq, lambda q: q.peek_dlq()),
    "replay": (lambda keys: keys.dlq, lambda q: q.replay_dlq()),
    "upsert": (lambda keys: keys.repeat, lambda q: q.add("n", 1, repeat=EVERY)),
    "upsert spec": (lambda keys: keys.spec("k"), lambda q: q.add("n", 1, repeat=EVERY, job_id="k")),
    "list": (lambda keys: keys.repeat, lambda q: q.get_repeatable_jobs()),
    "remove": (lambda keys: keys.repeat, lambda q: q.remove_repeatable_by_key("k")),
    "counts of stream": (lambda keys: keys.stream, lambda q: q.get_job_counts()),
    "counts of dlq": (lambda keys: keys.dlq, lambda q: q.get_job_counts()),
    "counts of delayed": (lambda keys: keys.delayed, lambda q: q.get_job_counts()),
    "counts of repeat": (lambda keys: keys.repeat, lambda q: q.get_job_counts()),
    "drain delayed": (lambda keys: keys.delayed, lambda q: q.drain(delayed=True)),
    "clean": (lambda keys: keys.dlq, lambda q: q.clean()),
    "clean delayed": (lambda keys: keys.delayed, lambda q: q.clean(state="delayed")),
}


@pytest.mark.parametrize("use", USES)
def test_a_key_of_another_type_is_named(
    twin: BlockingQueue, db: redis.Redis, keys: Keys, use: str
) -> None:
    key, operate = USES[use][0](keys), USES[use][1]
    db.lpush(key, "not ours")
    before = at_rest(db)
    with pytest.raises(WrongType) as caught:
        operate(twin)
    assert key in caught.value.keys
    assert key in str(caught.value)
    assert at_rest(db) == before


def test_events_that_cannot_be_written_undo_nothing(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.events, "not a stream")
    queue = connect(announce=True)
    queue.add("n", 1)
    queue.add("n", 1, delay_ms=HOUR)
    assert len(ids(db, keys)) == len(delayed(db, keys)) == 1


def test_every_error_of_a_caller_is_a_value_error_and_ours(twin: BlockingQueue) -> None:
    with pytest.raises(ValueError, match="job_id") as caught:
        twin.add("n", 1, job_id="")
    assert isinstance(caught.value, TamboError)
