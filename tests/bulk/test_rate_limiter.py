"""The rate limiter: how large the steps of a loop are, and how long it waits between them."""

from __future__ import annotations

import pytest

from tambomq.bulk.rate_limiter import RateLimiter


def test_a_limited_loop_takes_five_steps_a_second() -> None:
    assert RateLimiter(200, 250).step == 40
    assert RateLimiter(1, 250).step == 1
    assert RateLimiter(None, 250).step == 250


def test_a_loop_waits_only_when_it_is_ahead_of_its_rate() -> None:
    assert RateLimiter(200, 250).wait_s(400, 1.5) == pytest.approx(0.5)
    assert RateLimiter(200, 250).wait_s(100, 1.5) == 0
    assert RateLimiter(None, 250).wait_s(10**6, 0) == 0
