"""Servers that are full, unreachable or restarted, script flushes and cut connections."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, cast

import pytest
import redis

from tambomq.errors import ReplyLost, StoreFull, StoreUnavailable
from tambomq.rsmq import Rsmq, longpoll
from tests.rsmq.conftest import Connect
from tests.rsmq.stored import at_rest
from tests.servers import Server, eventually

Begin = Callable[..., Future[Any]]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """A function that starts another one in a thread."""
    with ThreadPoolExecutor(16) as pool:
        yield pool.submit


@pytest.fixture
def own_db(private_server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(private_server.url) as client:
        yield client


@pytest.fixture
def own(connect_to: Connect, private_server: Server) -> Rsmq:
    """A client of a server that only this test uses."""
    return connect_to(private_server.url)


# ── a full server ────────────────────────────────────────────────────────────


def test_a_full_server_refuses_sends_but_can_be_drained(own: Rsmq, own_db: redis.Redis) -> None:
    own.create_queue("q")
    ids = own.send_messages("q", "abcdef")
    own_db.config_set("maxmemory-policy", "noeviction")
    own_db.config_set("maxmemory", 1)
    before = at_rest(own_db)
    for attempt in (
        lambda: own.send_message("q", "x"),
        lambda: own.send_messages("q", ["x"] * 1500),
        lambda: own.create_queue("new"),
        lambda: own.set_queue_attributes("q", vt=1),
    ):
        with pytest.raises(StoreFull):
            attempt()
    assert at_rest(own_db) == before
    assert own.list_queues() == ["q"]
    assert own.get_queue_attributes("q").msgs == 6
    assert own.get_queue_stats("q").visible == 6
    assert len(own.peek_messages("q")) == 6
    (a,) = own.receive_messages("q", 1)
    assert own.change_message_visibility("q", a.id, 100, receipt=a.receipt)
    assert own.delete_message("q", a.id, receipt=a.receipt)
    assert own.delete_messages("q", [ids[1]]) == [True]
    popped = own.pop_message("q")
    assert popped is not None
    assert popped.id == ids[2]
    assert own.purge_queue("q") == 3
    own.delete_queue("q")
    own_db.config_set("maxmemory", 0)
    own.create_queue("q")
    own.send_message("q", "x")


# ── an unreachable server ────────────────────────────────────────────────────


def test_a_client_reconnects_to_a_restarted_server_and_finds_its_messages(
    own: Rsmq, private_server: Server
) -> None:
    own.create_queue("q")
    sent = [own.send_message("q", "before")]
    for n in range(3):
        private_server.kill()
        private_server.restart()
        sent.append(own.send_message("q", str(n)))
    assert [m.id for m in own.receive_messages("q", 10)] == sent


def test_a_client_waits_for_a_server_that_restarts(
    own: Rsmq, private_server: Server, begin: Begin
) -> None:
    own.create_queue("q")
    private_server.kill()
    waiting = begin(own.send_message, "q", "x")
    private_server.restart()
    id = waiting.result(60)
    assert [m.id for m in own.receive_messages("q", 10)] == [id]


def test_an_unreachable_server_is_reported(connect_to: Connect, private_server: Server) -> None:
    client = connect_to(private_server.url, patience_s=0.1)
    client.create_queue("q")
    private_server.kill()
    for attempt in (
        lambda: client.send_message("q", "x"),
        lambda: client.send_messages("q", ["x"] * 600),
        lambda: client.receive_message("q", wait=5),
        lambda: client.peek_messages("q"),
    ):
        with pytest.raises(StoreUnavailable):
            attempt()
    private_server.restart()
    assert client.receive_message("q") is None


def test_a_waiting_receiver_survives_a_restart(
    own: Rsmq,
    own_db: redis.Redis,
    private_server: Server,
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own.create_queue("q")
    # The server has the script from now on, so that each receive counts once.
    assert own.receive_message("q") is None
    own_db.config_resetstat()
    with monkeypatch.context() as patch:
        # A receive under way when the server is killed would rightly fail: ReplyLost.
        patch.setattr(longpoll, "POLL_EVERY_S", 600.0)
        waiting = begin(own.receive_message, "q", wait=200)
        # One receive at once and one after subscribing: by now it waits.
        eventually(lambda: scripts_run(own_db) >= 2)
        private_server.kill()
    private_server.restart()
    id = own.send_message("q", "x")
    assert waiting.result(60).id == id


def scripts_run(db: redis.Redis) -> int:
    stats = db.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


# ── a reply that is lost ─────────────────────────────────────────────────────


@contextmanager
def cut_before_reply(db: redis.Redis) -> Iterator[None]:
    """Cut the connection of a call started inside after it reached the server, before the reply."""
    db.client_pause(60_000, all=False)
    try:
        yield
        eventually(lambda: any("b" in each["flags"] for each in ours(db)))
        for each in ours(db):
            db.client_kill_filter(_id=each["id"])
    finally:
        db.client_unpause()


def ours(db: redis.Redis) -> list[dict[str, str]]:
    return [each for each in db.client_list() if each["name"] == "tambomq"]


def test_an_operation_that_may_have_been_done_is_reported_and_not_repeated(
    client: Rsmq, db: redis.Redis, begin: Begin
) -> None:
    client.create_queue("q")
    client.send_message("q", "there")
    before = at_rest(db)
    for operation in (
        lambda: client.send_message("q", "x"),
        lambda: client.send_messages("q", ["x"]),
        lambda: client.receive_message("q"),
        lambda: client.pop_message("q"),
        lambda: client.create_queue("new"),
        lambda: client.purge_queue("q"),
        lambda: client.delete_queue("q"),
    ):
        with cut_before_reply(db):
            lost = begin(operation)
        with pytest.raises(ReplyLost):
            lost.result(60)
    assert at_rest(db) == before


def test_an_operation_that_is_safe_to_repeat_is_repeated(
    client: Rsmq, db: redis.Redis, begin: Begin
) -> None:
    client.create_queue("q")
    a, b, c = client.send_messages("q", "abc")
    for operation, answer in (
        (lambda: client.change_message_visibility("q", a, 100), True),
        (lambda: client.delete_message("q", a), True),
        (lambda: client.delete_messages("q", [a, b]), [False, True]),
        (lambda: client.set_queue_attributes("q", vt=7).vt, 7),
    ):
        with cut_before_reply(db):
            repeated = begin(operation)
        assert repeated.result(60) == answer
    assert [m.id for m in client.peek_messages("q")] == [c]


# ── under load ───────────────────────────────────────────────────────────────


class MessageLoad:
    """Senders and receivers that run until stopped, and the messages they confirmed."""

    def __init__(self, client: Rsmq) -> None:
        self.client, self.enough = client, Event()
        self.sent: list[str] = []
        self.received: list[str] = []
        self.lost = 0
        self._numbers = itertools.count()

    def send(self) -> None:
        while not self.enough.is_set():
            with self._forgiven():
                self.sent.append(self.client.send_message("q", str(next(self._numbers))))
            with self._forgiven():
                self.sent += self.client.send_messages("q", ["batch"] * 3)

    def receive(self) -> None:
        while not self.enough.is_set():
            with self._forgiven():
                messages = self.client.receive_messages("q", 5, vt=3600, wait=0.05)
                self.received += [message.id for message in messages]
                # Deletes two of three: the rest must still be in the queue at the end.
                self.client.delete_messages("q", messages[: len(messages) * 2 // 3])

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except ReplyLost:
            self.lost += 1

    def run(self, begin: Begin, disturb: Callable[[], object], *, times: int) -> None:
        """Send and receive while *disturb* is called every 100 ms."""
        running = [begin(work) for work in (self.send, self.receive) for _ in range(4)]
        for _ in range(times):
            self.enough.wait(0.1)
            disturb()
        # How many there are by now depends on the machine.
        try:
            eventually(lambda: min(len(self.sent), len(self.received)) > 50, within_s=20)
        finally:
            self.enough.set()
        for each in running:
            each.result(60)

    def settle(self, db: redis.Redis) -> None:
        """Check that every confirmed message was received once or is in the queue."""
        assert len(self.sent) > 50
        assert len(set(self.received)) == len(self.received) > 50
        listed = {id.decode() for id in cast("list[bytes]", db.zrange("rsmq:q", 0, -1))}
        assert set(self.sent) <= listed | set(self.received)
        rest = self.client.receive_messages("q", 100_000)
        assert not {message.id for message in rest} & set(self.received)
        assert all(message.rc == 1 for message in rest)
        stats = self.client.get_queue_stats("q")
        assert (stats.visible, stats.members_without_body, stats.bodies_without_member) == (0, 0, 0)
        assert stats.stray_fields == 0


@pytest.mark.slow
def test_no_confirmed_message_is_lost_or_doubled_while_connections_are_cut(
    client: Rsmq, db: redis.Redis, begin: Begin
) -> None:
    client.create_queue("q")
    load = MessageLoad(client)

    def cut() -> None:
        for each in ours(db):
            db.client_kill_filter(_id=each["id"])

    load.run(begin, cut, times=20)
    load.settle(db)


def test_scripts_are_loaded_again_after_a_script_flush(
    client: Rsmq, db: redis.Redis, begin: Begin
) -> None:
    client.create_queue("q")
    load = MessageLoad(client)

    def forget() -> None:
        for _ in range(5):
            db.script_flush()

    load.run(begin, forget, times=10)
    load.settle(db)
    assert load.lost == 0


def test_no_confirmed_message_is_lost_when_the_server_is_killed(
    own: Rsmq, own_db: redis.Redis, private_server: Server, begin: Begin
) -> None:
    own.create_queue("q")
    load = MessageLoad(own)

    def restart() -> None:
        private_server.kill()
        private_server.restart()

    load.run(begin, restart, times=3)
    load.settle(own_db)
