"""Levels of durability as settings: the same as clients take."""

from __future__ import annotations

import pytest

from tambomq.errors import InvalidFormat, SettingsError
from tambomq.settings import load as settings
from tambomq.settings.durable_level import DurableLevel
from tambomq.store.durability.level import RULE, durability


@pytest.mark.parametrize("level", ["memory", "disk", "replicas:1", "replicas:99"])
def test_every_level_of_the_clients_is_a_setting(level: str) -> None:
    durability(level)
    assert DurableLevel().read(level) == level


@pytest.mark.parametrize("text", ["", "Disk", "replicas", "replicas:0", "replicas:100", "disk "])
def test_what_clients_refuse_is_no_setting(text: str) -> None:
    with pytest.raises(InvalidFormat):
        durability(text)
    if text:
        with pytest.raises(SettingsError):
            settings.load(flags={"gomq_durable": text})


def test_a_wrong_level_is_refused_with_the_ones_there_are() -> None:
    assert str(DurableLevel()) == RULE
    with pytest.raises(SettingsError, match="TAMBO_GOMQ_DURABLE: expected memory, disk, or"):
        settings.load(env={"TAMBO_GOMQ_DURABLE": "disc"})


def test_the_level_of_gomq_is_memory_unless_set() -> None:
    assert settings.load(env={}).gomq.durable == "memory"
    assert settings.load(env={"TAMBO_GOMQ_DURABLE": "replicas:2"}).gomq.durable == "replicas:2"
