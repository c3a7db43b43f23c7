"""The queues that a process records, and the metrics of all journals."""

from __future__ import annotations

import pytest
import redis

from tambomq.errors import SettingsError
from tambomq.journal import ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import DEFAULT_BOUNDS
from tambomq.journal.wire import JournalRecord
from tambomq.serve.component import Metric
from tambomq.serve.health import ProcessHealth
from tambomq.serve.journal import JournalComponent, journal_policies
from tambomq.serve.process import components
from tambomq.serve.store import ExternalStore
from tambomq.settings.load import GomqSettings, Settings
from tambomq.settings.sections import JournalSettings
from tambomq.store.sync import Store
from tests.journal.looking import commit_all
from tests.servers import Server


def journalled(*patterns: str) -> Settings:
    return Settings(journal=JournalSettings(patterns=patterns))


def values(metrics: list[Metric]) -> dict[tuple[str, ...], float]:
    return {(each.name, *(value for _, value in each.labels)): each.value for each in metrics}


def test_journal_patterns_are_grouped_by_protocol() -> None:
    found = journal_policies(journalled("kqueue:*", "gomq:orders", "gomq:a:b"))
    assert found["kqueue"].patterns == ("*",)
    assert found["gomq"].patterns == ("orders", "a:b")
    assert found["gomq"].bounds == DEFAULT_BOUNDS


def test_bounds_reach_the_servers() -> None:
    settings = Settings(journal=JournalSettings(max_entries=7, max_bytes=2048))
    for each in journal_policies(settings).values():
        assert (each.bounds.max_entries, each.bounds.max_bytes) == (7, 2048)


@pytest.mark.parametrize("pattern", ["orders", "kqueue:", ":orders", "amqp:orders", "KQUEUE:*"])
def test_an_invalid_pattern_is_refused_before_anything_opens(pattern: str) -> None:
    with pytest.raises(SettingsError, match="such as kqueue"):
        components(journalled(pattern), ProcessHealth())


def test_the_error_for_a_client_journal_names_the_client_option() -> None:
    with pytest.raises(SettingsError, match=r'Rsmq\(url, journal=\("orders",\)\)'):
        components(journalled("rsmq:orders"), ProcessHealth())
    with pytest.raises(SettingsError, match=r'Queue\("emails", journal=True\)'):
        components(journalled("chasqui:emails"), ProcessHealth())


def test_a_protocol_that_is_not_served_has_no_journal() -> None:
    settings = Settings(
        gomq=GomqSettings(enabled=False), journal=JournalSettings(patterns=("gomq:*",))
    )
    with pytest.raises(SettingsError, match="gomq is not served here"):
        components(settings, ProcessHealth())


async def test_all_journals_have_metrics(server: Server) -> None:
    store = Store(server.url)
    for protocol in ("rsmq", "kqueue"):
        keys = JournalKeys(protocol, "orders")
        store.run(ops.append_bounded(keys, DEFAULT_BOUNDS, [(1, b"1234")] * 3, missed=2))
    commit_all(server.url, "rsmq", "orders")
    store.run(ops.append_bounded(JournalKeys("rsmq", "orders"), DEFAULT_BOUNDS, [(1, b"")]))
    store.close()
    component = JournalComponent(ExternalStore(server.url))
    await component.start()
    found = values(list(await component.metrics()))
    await component.stop()
    assert found["journals",] == 2
    assert found["entries", "kqueue", "orders"] == 3
    assert found["bytes", "kqueue", "orders"] == 3 * 104
    assert found["dropped", "kqueue", "orders"] == 2
    assert found["refused", "kqueue", "orders"] == 0
    assert found["entries", "rsmq", "orders"] == 2
    assert found["lag_bytes", "rsmq", "orders", "etl"] == 100
    assert found["lag_seconds", "rsmq", "orders", "etl"] >= 0


async def test_a_damaged_journal_does_not_hide_the_metrics_of_others(
    server: Server, db: redis.Redis
) -> None:
    store = Store(server.url)
    for queue in ("a", "b"):
        store.follow(ops.append(JournalKeys("gomq", queue), [JournalRecord(1)]))
    store.close()
    db.set(JournalKeys("gomq", "a").state, "x")
    component = JournalComponent(ExternalStore(server.url))
    await component.start()
    found = values(list(await component.metrics()))
    await component.stop()
    assert ("entries", "gomq", "a") not in found
    assert found["entries", "gomq", "b"] == 1
