from __future__ import annotations

import pytest

from tambomq.console.http.login.limit import OF_ALL, ONE_MORE_S, PER_ADDRESS, LoginLimit


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limit(clock: Clock) -> LoginLimit:
    return LoginLimit(clock)


def test_an_address_that_was_wrong_too_often_has_to_wait(limit: LoginLimit) -> None:
    for _ in range(PER_ADDRESS):
        assert limit.wait_s("a") == 0
        limit.failed("a")
    assert limit.wait_s("a") == pytest.approx(ONE_MORE_S)
    assert limit.wait_s("b") == 0


def test_time_gives_attempts_back_one_by_one(limit: LoginLimit, clock: Clock) -> None:
    for _ in range(PER_ADDRESS):
        limit.failed("a")
    clock.now_s += ONE_MORE_S
    assert limit.wait_s("a") == 0
    limit.failed("a")
    assert limit.wait_s("a") > 0


def test_many_addresses_share_a_limit(limit: LoginLimit) -> None:
    for number in range(OF_ALL):
        limit.failed(f"address {number}")
    assert limit.wait_s("another") > 0


def test_addresses_are_forgotten_before_they_fill_the_memory(
    limit: LoginLimit, clock: Clock
) -> None:
    for number in range(10_100):
        limit.failed(f"address {number}")
    clock.now_s += 1_000_000
    assert len(limit._addresses) == 10_000
