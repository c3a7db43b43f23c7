"""What each eviction policy puts at risk."""

from __future__ import annotations

import logging

import pytest
import redis

from tambomq.alarms.eviction import eviction_risk, warn_of_eviction
from tambomq.serve.store import ExternalStore
from tambomq.store.endpoint import endpoint
from tests.alarms.stores import UNREACHABLE
from tests.serve.components import opened
from tests.servers import Server


@pytest.mark.parametrize("policy", ["", "noeviction"])
def test_a_policy_that_deletes_nothing_is_no_risk(policy: str) -> None:
    assert eviction_risk(policy, 1000) is None


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
def test_a_policy_for_all_keys_deletes_queues(policy: str) -> None:
    now, later = eviction_risk(policy, 1000), eviction_risk(policy, 0)
    assert now is not None
    assert now.is_fatal
    assert now.text == f"the policy {policy} deletes queues when memory is full"
    assert later is not None
    assert later.text.endswith("once it has a maxmemory")
    assert "noeviction" in now.advice


def test_a_policy_for_keys_that_expire_deletes_locks() -> None:
    risk = eviction_risk("volatile-ttl", 1000)
    assert risk is not None
    assert not risk.is_fatal
    assert "locks" in risk.text


@pytest.mark.parametrize(("policy", "count"), [("allkeys-lru", 1), ("noeviction", 0)])
async def test_a_server_of_the_users_own_is_warned_of_once_at_the_start(
    private_server: Server, caplog: pytest.LogCaptureFixture, policy: str, count: int
) -> None:
    with redis.Redis.from_url(private_server.url) as db:
        db.config_set("maxmemory-policy", policy)
    async with opened(ExternalStore(private_server.url)):
        lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(lines) == count
    assert all(policy in line and "CONFIG SET maxmemory-policy" in line for line in lines)


async def test_a_server_that_cannot_be_asked_is_not_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await warn_of_eviction(endpoint(UNREACHABLE))
    assert not caplog.records
