"""Journalling of published messages: each is recorded at most once, or counted as missed."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import (
    BrokerUnavailable,
    DurabilityUnsupported,
    InvalidFormat,
    StoreUnavailable,
)
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.kqueue import KqueueServer, recorder
from tambomq.kqueue.frames import encode_message, messages_in
from tambomq.kqueue.model import Counters
from tests.journal.looking import bodies, commit_all, records, state
from tests.kqueue.conftest import Serve
from tests.kqueue.naive import message
from tests.kqueue.server_process import ServerProcess
from tests.kqueue.serving import Raw, Served
from tests.servers import Server, eventually

ENTRY = 100

frames = st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)))


@given(frames)
def test_the_messages_of_a_run_can_be_parsed_again(sent: list[tuple[bytes, bytes]]) -> None:
    before, data = b"??", b"".join(encode_message(*each) for each in sent)
    found = messages_in(before + data + b"!", 2, 2 + len(data))
    assert list(found) == sent


def test_published_messages_are_recorded_in_order(serve: Serve, server: Server) -> None:
    served = serve(journal=("ord*",), url=server.url)
    sent = [b"%d" % n for n in range(2500)]
    with served.consumer(b"orders"), served.consumer(b""), served.producer() as producer:
        producer.send(*((b"orders", body) for body in sent), (b"plain", b"x"))
        served.comes_to(lambda stats: stats.recorded == len(sent))
    found = records(server.url, "kqueue", "orders")
    assert [each.body for each in found] == sent
    assert {(each.event, each.id, each.targets) for each in found} == {("sent", "", 2)}
    assert state(server.url, "kqueue", "plain") is None
    assert served.stats.unrecorded == 0


def test_the_fields_are_as_they_are_described(serve: Serve, db: redis.Redis) -> None:
    url = f"redis://127.0.0.1:{db.connection_pool.connection_kwargs['port']}"
    served = serve(journal=("*",), url=url)
    with served.producer() as producer:
        producer.send((b"q", b""), (b"\xff", b"x"))
        served.comes_to(lambda stats: stats.recorded == 2)
    found: Any = db.xrange(JournalKeys("kqueue", "q").journal)
    ((_, fields),) = found
    assert list(fields.items()) == [
        (b"o", b"100"),
        (b"e", b"sent"),
        (b"ts", fields[b"ts"]),
        (b"to", b"0"),
        (b"d", b""),
    ]
    assert db.xlen(JournalKeys("kqueue", r"\xff").journal) == 1


def test_consumers_receive_the_same_with_a_journal(serve: Serve, server: Server) -> None:
    served = serve(journal=("*",), url=server.url, ok_replies=True)
    frame = message(b"q", b"body")
    with served.consumer(b"q") as consumer, served.producer() as producer:
        assert consumer.read(4) == b"OKOK"
        producer.send_bytes(frame * 3)
        assert producer.read(8) == b"OK" * 4
        assert consumer.read(3 * len(frame)) == frame * 3


def test_a_stop_writes_pending_entries(server: Server) -> None:
    with Served("uvloop", journal=("*",), url=server.url) as served:
        with served.producer() as producer:
            producer.send(*[(b"q", b"%d" % n) for n in range(5000)])
            served.comes_to(lambda stats: stats.received == 5000)
        served.run(served.server.stop(10))
        assert served.stats.recorded == 5000
    assert len(bodies(server.url, "kqueue", "q")) == 5000


def test_a_full_journal_skips_and_counts_entries_while_messages_are_delivered(
    serve: Serve, server: Server
) -> None:
    served = serve(journal=("q",), journal_bounds=JournalBounds(max_entries=3), url=server.url)
    with served.consumer(b"q") as consumer, served.producer() as producer:
        producer.send(*[(b"q", b"%d" % n) for n in range(5)])
        assert [body for _, body in consumer.messages(5)] == [b"%d" % n for n in range(5)]
        served.comes_to(lambda stats: (stats.recorded, stats.unrecorded) == (3, 2))
        commit_all(server.url, "kqueue", "q")
        producer.send((b"q", b"5"))
        served.comes_to(lambda stats: stats.recorded == 4)
    assert bodies(server.url, "kqueue", "q") == [b"2", b"5"]
    found = state(server.url, "kqueue", "q")
    assert found is not None
    assert found.dropped == 2


def test_a_slow_redis_loses_entries_and_no_messages(
    private_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_PENDING_BYTES", 10_000)
    with (
        Served("asyncio", journal=("q",), url=private_server.url) as served,
        redis.Redis.from_url(private_server.url) as db,
        served.consumer(b"q") as consumer,
        served.producer() as producer,
    ):
        producer.send((b"q", b"first"))
        served.comes_to(lambda stats: stats.recorded == 1)
        db.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        for _ in range(10):
            producer.send(*[(b"q", b"x" * 1000)] * 5)
            consumer.messages(5)
        served.comes_to(lambda stats: stats.unrecorded > 0)
        db.execute_command("CLIENT", "UNPAUSE")
        served.comes_to(lambda stats: stats.recorded + stats.unrecorded == 51)
        producer.send((b"q", b"last"))
        served.comes_to(lambda stats: stats.recorded + stats.unrecorded == 52)
        found = state(private_server.url, "kqueue", "q")
        assert found is not None
        assert (found.entries, found.dropped) == (served.stats.recorded, served.stats.unrecorded)


def test_the_number_of_journals_is_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch, db: redis.Redis
) -> None:
    monkeypatch.setattr(recorder, "MAX_JOURNALS", 5)
    with (
        Served("asyncio", journal=("*",), url=server.url) as served,
        served.producer() as producer,
    ):
        producer.send(*[(b"q%d" % n, b"x") for n in range(8)], (b"q" * 2000, b"x"), (b"", b"x"))
        served.comes_to(lambda stats: (stats.recorded, stats.unrecorded) == (5, 4))
    assert len(list(db.scan_iter("{tambo*}:journal"))) == 5


@pytest.mark.slow
async def test_an_unreachable_redis_fails_the_start() -> None:
    server = KqueueServer(port=0, journal=("*",), url="redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable):
        await server.start()
    await server.stop(0)


async def test_a_port_that_is_taken_leaves_nothing_open(server: Server) -> None:
    with pytest.raises(BrokerUnavailable):
        await KqueueServer(port=server.port, journal=("*",), url=server.url).start()


def test_an_illegal_pattern_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="put it in a tuple"):
        KqueueServer(journal="orders")


def test_a_killed_server_has_recorded_the_first_messages_each_once(server: Server) -> None:
    sent = [b"%d" % n for n in range(20_000)]
    with ServerProcess(journal=["q"], url=server.url) as process:
        for part in range(2):
            half = sent[part * 10_000 : (part + 1) * 10_000]
            before = len(bodies(server.url, "kqueue", "q"))
            with Raw(process.port).send_bytes(b"produce") as producer:
                producer.send(*((b"q", body) for body in half))
                eventually(
                    lambda: len(bodies(server.url, "kqueue", "q")) > before,  # noqa: B023  (in this turn)
                    within_s=20,
                )
                process.kill()
            found = bodies(server.url, "kqueue", "q")[before:]
            assert found == half[: len(found)]
            process.restart()


# ── durable ──────────────────────────────────────────────────────────────────


def test_recorded_messages_that_the_disk_has_survive_a_crash(
    serve: Serve, private_server: Server
) -> None:
    served = serve(journal=("*",), journal_durable="disk", url=private_server.url)
    with served.producer() as producer:
        producer.send((b"orders", b"1"), (b"orders", b"2"))
        served.comes_to(lambda stats: stats.recorded == 2)
    private_server.kill()
    private_server.restart()
    assert bodies(private_server.url, "kqueue", "orders") == [b"1", b"2"]


def test_a_recorder_does_not_start_with_a_level_that_redis_cannot_confirm(
    serve: Serve, server: Server
) -> None:
    with pytest.raises(DurabilityUnsupported, match="it keeps no append-only file"):
        serve(journal=("*",), journal_durable="disk", url=server.url)


async def test_what_is_not_confirmed_is_recorded_once_and_logged(
    private_server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "WAIT_S", 0.05)
    counters, policy = Counters(), JournalPolicy("kqueue", ("*",))
    writes = recorder.Recorder(private_server.url, policy, counters, "replicas:1")
    await writes.start()
    data = encode_message(b"orders", b"1")
    writes.record(data, [(0, len(data), frozenset(), 1)])
    await writes.close(30)
    assert (counters.recorded, counters.unrecorded) == (1, 0)
    assert bodies(private_server.url, "kqueue", "orders") == [b"1"]
    assert "not confirmed as durable: 0 of 1 replicas" in caplog.text
