from __future__ import annotations

import math
import random
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.chasqui.backoff import QUEUE_BACKOFF, wait_ms
from tambomq.chasqui.job import U32, U64, BackoffSpec
from tests.chasqui.vectors import table

whole = st.integers(0, U64)
specs = st.builds(
    BackoffSpec,
    st.sampled_from(["fixed", "exponential", "linear", ""]),
    whole,
    st.none() | whole,
    st.none() | st.floats() | st.integers(),
    st.none() | whole,
)


def never(below: int) -> NoReturn:
    raise AssertionError(f"no jitter below {below} was asked for")


@pytest.mark.parametrize("row", table("backoff"))
def test_backoff_delays_match_those_of_the_engine(row: dict[str, Any]) -> None:
    spec = BackoffSpec(*(row[name] for name in BackoffSpec.__struct_fields__))
    assert wait_ms(spec, row["wire_attempt_before"] + 1, never) == row["backoff_ms"]


def test_a_job_without_backoff_waits_as_its_queue_does() -> None:
    own = BackoffSpec("fixed", 700, jitter_ms=0)
    assert [wait_ms(None, n, lambda below: below - 1) for n in (1, 2, 3, 20)] == [
        199,
        299,
        499,
        30_099,
    ]
    assert wait_ms(None, 5, never, own) == 700


def test_missing_fields_of_a_job_come_from_its_queue_or_else_the_default() -> None:
    queue = BackoffSpec("fixed", 1, max_delay_ms=5000, multiplier=10.0)
    waits = [wait_ms(BackoffSpec("exponential", 3), n, lambda _: 0, queue) for n in (1, 2, 3, 9)]
    assert waits == [3, 30, 300, 5000]
    assert wait_ms(BackoffSpec("fixed", 3), 1, lambda below: below, queue) == 103


def test_jitter_comes_on_top_of_the_cap() -> None:
    spec = BackoffSpec("fixed", 100_000, 1000, None, 50)
    assert wait_ms(spec, 1, lambda below: below - 1) == 1049


@pytest.mark.parametrize(
    ("delay_ms", "factor", "retry", "wait"),
    [
        (100, 2.0, 10**6, 30_000),
        (100, -2.0, 10**6, 0),
        (100, -2.0, 10**6 + 1, 30_000),
        (100, 0.5, 10**400, 0),
        (100, math.nan, 2, 30_000),
        (100, math.inf, 2, 30_000),
        (100, -math.inf, 2, 0),
        (100, 10**400, 2, 30_000),
        (0, 2.0, 10**6, 30_000),
        (100, 2.0, 0, 100),
    ],
)
def test_arithmetic_beyond_floats_ends_at_the_cap_or_at_zero(
    delay_ms: int, factor: float, retry: int, wait: int
) -> None:
    assert wait_ms(BackoffSpec("exponential", delay_ms, None, factor, 0), retry, never) == wait


@given(st.none() | specs, st.integers(-1, U32 + 2), specs)
def test_a_wait_is_never_negative_nor_beyond_cap_and_jitter(
    spec: BackoffSpec | None, retry: int, default: BackoffSpec
) -> None:
    chosen = [spec or default, default, QUEUE_BACKOFF]
    cap = next(s.max_delay_ms for s in chosen if s.max_delay_ms is not None)
    jitter = next(s.jitter_ms for s in chosen if s.jitter_ms is not None)
    assert 0 <= wait_ms(spec, retry, random.randrange, default) < cap + max(jitter, 1)
