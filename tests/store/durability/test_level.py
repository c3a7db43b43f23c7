"""The levels of durability, and the commands that wait for them."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.store.durability.level import durability


def test_memory_asks_for_nothing() -> None:
    assert durability("memory") is None


def test_disk_waits_for_the_file_of_the_server() -> None:
    asked = durability("disk")
    assert asked is not None
    assert (asked.wanted, asked.command(2.5)) == (1, ("WAITAOF", 1, 0, 2500))


def test_replicas_wait_for_as_many() -> None:
    asked = durability("replicas:12", 0.0001)
    assert asked is not None
    assert (asked.wanted, asked.command(asked.timeout_s)) == (12, ("WAIT", 12, 1))


@pytest.mark.parametrize(
    "level", ["", "Disk", "replicas", "replicas:0", "replicas:x", "replicas:100", None, 1]
)
def test_another_level_is_refused(level: Any) -> None:
    with pytest.raises(InvalidFormat, match="memory, disk, or replicas:N"):
        durability(level)


@pytest.mark.parametrize("seconds", [0, -1, "5", True, 1e9, float("nan")])
def test_a_time_limit_is_a_positive_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(InvalidValue, match="durable_timeout_s"):
        durability("memory", seconds)
