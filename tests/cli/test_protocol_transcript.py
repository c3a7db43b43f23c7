from __future__ import annotations

import time

import pytest

from tambomq.cli.rsmq.rsmqctl import rsmqctl
from tests.cli.transcript import VECTORS, call, play, redis_cli, steps
from tests.servers.run import Server


@pytest.fixture
def values(server: Server) -> dict[str, str]:
    """What the placeholders of the document stood for this time."""

    def shell(command: list[str]) -> list[str]:
        assert command[0] == "rsmqctl"
        return call(rsmqctl, *command, url=server.url).lines

    def cli(command: list[str]) -> list[str]:
        return redis_cli(server.url, command)

    return play(VECTORS / "rsmq_protocol.txt", {"$": shell, ">": cli})


def test_every_example_of_the_document_prints_what_it_says(values: dict[str, str]) -> None:
    assert len(steps(VECTORS / "rsmq_protocol.txt")) == 20
    assert values.keys() == {"S1", "ID1", "ID2", "MS1", "MS2", "MS3", "MS4"}


def test_message_without_delay_is_visible_from_the_moment_in_its_id(values: dict[str, str]) -> None:
    assert int(values["ID1"][:10], 36) // 1000 == int(values["MS1"])


def test_created_is_in_seconds_and_scores_are_in_milliseconds(values: dict[str, str]) -> None:
    assert 0 <= int(values["MS1"]) - int(values["S1"]) * 1000 < 60_000


def test_visibility_counts_from_the_call(values: dict[str, str]) -> None:
    called_ms = int(values["MS4"]) - 600_000
    assert int(values["MS3"]) <= called_ms <= time.time() * 1000
