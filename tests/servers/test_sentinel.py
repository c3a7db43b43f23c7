"""The sentinels that other tests rely on."""

from __future__ import annotations

import pytest

from tests.servers import eventually
from tests.servers.sentinel import Sentinels

pytestmark = pytest.mark.slow


def test_the_sentinels_promote_a_replica_of_a_killed_primary() -> None:
    with Sentinels() as servers:
        (replica,) = servers.replicas
        killed = servers.kill_primary()
        assert servers.wait_promoted() is replica
        assert servers.replicas == [killed]
        killed.restart()
        servers.wait_whole()
        assert servers.ask(killed, "ROLE")[3] == "connected"


def test_a_killed_primary_rejoins_as_a_replica_without_having_been_a_primary_again() -> None:
    with Sentinels() as servers:
        killed = servers.kill_primary()
        promoted = servers.wait_promoted()
        servers.ask(promoted, "SET", "a", "1")
        servers.rejoin(killed)
        assert servers.ask(killed, "ROLE")[0] == "slave"
        servers.wait_whole()
        assert servers.ask(killed, "GET", "a") == "1"
        assert servers.failover() is killed


def test_a_failover_swaps_the_roles() -> None:
    with Sentinels(password="secret", sentinel_password="other") as servers:
        first = servers.primary
        servers.ask(first, "SET", "a", "1")
        second = servers.failover()
        assert second is not first
        assert servers.ask(second, "GET", "a") == "1"
        assert servers.failover() is first


def test_a_majority_of_three_sentinels_replaces_a_frozen_primary() -> None:
    with Sentinels(replicas=2, sentinels=3) as servers:
        frozen = servers.freeze_primary()
        assert servers.wait_promoted() is not frozen
        servers.resume(frozen)
        eventually(lambda: servers.ask(frozen, "ROLE")[0] == "slave", within_s=20)
