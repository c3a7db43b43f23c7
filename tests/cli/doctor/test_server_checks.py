"""The checks of a server, on facts that no test server has."""

from __future__ import annotations

import pytest

from tambomq.alarms.model import Alarm
from tambomq.cli.doctor.facts import DoctorFinding, ServerReport
from tambomq.cli.doctor.server_checks import check_server

WELL = {
    "redis_version": "8.6.0",
    "maxmemory_policy": "noeviction",
    "maxmemory": "1000000000",
    "used_memory": "1000000",
    "aof_enabled": "1",
    "role": "master",
    "connected_slaves": "0",
}


def about(name: str, **info: str) -> list[DoctorFinding]:
    return found_about(name, ServerReport(url="redis://host", info={**WELL, **info}))


def found_about(name: str, facts: ServerReport) -> list[DoctorFinding]:
    return [each for each in check_server(facts) if each.about == name]


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"redis_version": "6.2.14"}, "wrong"),
        ({"redis_version": "7.0.0"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.0"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "7.1.0"}, "wrong"),
        ({"redis_version": ""}, "look"),
    ],
)
def test_old_servers_are_refused(info: dict[str, str], level: str) -> None:
    (found,) = about("server", **info)
    assert found.level == level


@pytest.mark.parametrize(
    ("ahead_s", "level", "words"),
    [
        (0.4, "ok", "agree"),
        (-0.9, "ok", "agree"),
        (2.0, "look", "2.0 s ahead of"),
        (-6.5, "wrong", "6.5 s behind"),
    ],
)
def test_clocks_that_differ_are_found(ahead_s: float, level: str, words: str) -> None:
    (found,) = found_about("clock", ServerReport(url="redis://host", ahead_s=ahead_s))
    assert (found.level, words in found.finding) == (level, True)


def test_evicted_keys_are_wrong_whatever_the_policy_is_now() -> None:
    levels = [each.level for each in about("eviction", evicted_keys="12")]
    assert levels == ["ok", "wrong"]


def test_replica_that_lags_is_named() -> None:
    late = {"connected_slaves": "1", "slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=60"}
    (found,) = about("replicas", **late)
    assert (found.level, found.finding) == ("look", "not up to date: 10.0.0.2:6379")
    well = {**late, "slave0": "ip=10.0.0.2,port=6379,state=online,offset=1,lag=0"}
    (found,) = about("replicas", **well)
    assert (found.level, found.finding[:12]) == ("ok", "1 connected,")


def test_maxmemory_near_the_memory_of_the_machine_is_worth_a_look() -> None:
    (found,) = about("memory", maxmemory="900", used_memory="10", total_system_memory="1000")
    assert found.level == "look"


def test_cluster_is_reported_with_advice_on_braces() -> None:
    (found,) = about("cluster", cluster_enabled="1")
    assert "braces" in found.next


def test_many_clients_are_worth_a_look() -> None:
    (found,) = about("clients", connected_clients="90", maxclients="100")
    assert found.level == "look"


def test_damaged_numbers_do_not_stop_the_checks() -> None:
    assert about("memory", used_memory="many", maxmemory="") == []


def test_raised_alarms_are_wrong_and_say_what_to_do() -> None:
    alarm = Alarm("memory", "", 95 << 20, 90 << 20, 80 << 20)
    facts = ServerReport(url="redis://host", info=WELL, alarms=(alarm,))
    (found,) = found_about("alarms", facts)
    assert found.level == "wrong"
    assert "memory has 95.0 MiB in use" in found.finding
    assert "producers are stopped" in found.finding
    assert "consumers" in found.next
    assert found_about("alarms", ServerReport(url="redis://host", info=WELL)) == []
