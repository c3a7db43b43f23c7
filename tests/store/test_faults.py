"""Calls while servers and connections fail, on both stores."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import redis

from tambomq.clock import Deadline
from tambomq.errors import ReplyLost, StoreError, StoreUnavailable
from tambomq.store.endpoint import endpoint
from tests.servers import Server, eventually
from tests.servers.ports import free_port
from tests.store.conftest import Open
from tests.store.proxy import Proxy
from tests.store.twins import AnyStore, Looped, add, echo, incr


def test_a_call_whose_reply_is_lost_is_not_repeated(
    proxy: Proxy, open_store: Open, db: redis.Redis
) -> None:
    store = open_store(proxy.url)
    assert store.run(incr()) == 1
    proxy.cut("reply", after=0)
    with pytest.raises(ReplyLost):
        store.run(incr())
    assert db.get("count") == b"2"
    assert store.run(incr()) == 3


@pytest.mark.parametrize("after", [0, 1, 30, 70])
def test_a_call_that_was_cut_on_its_way_is_not_repeated(
    proxy: Proxy, open_store: Open, db: redis.Redis, after: int
) -> None:
    store = open_store(proxy.url)
    store.run(incr())
    proxy.cut("request", after)
    with pytest.raises(ReplyLost):
        store.run(incr())
    assert db.get("count") == b"1"


@pytest.mark.parametrize("way", ["request", "reply"])
def test_a_repeatable_call_is_repeated_after_a_broken_connection(
    proxy: Proxy, open_store: Open, way: str
) -> None:
    store = open_store(proxy.url)
    store.run(add("a"))
    proxy.cut("reply" if way == "reply" else "request", after=1)
    assert store.run(add("b")) == "b"
    assert proxy.connections == 2


def test_a_pipeline_that_breaks_keeps_the_replies_that_came(
    proxy: Proxy, open_store: Open, db: redis.Redis
) -> None:
    store = open_store(proxy.url)
    store.run(incr())
    proxy.cut("reply", after=len(":2\r\n:3\r\n"))
    second, third, lost, member = store.outcomes([incr(), incr(), incr(), add("a")])
    assert (second, third, member) == (2, 3, "a")
    assert isinstance(lost, ReplyLost)
    assert db.get("count") == b"4"


def test_a_reply_that_does_not_arrive_in_time_is_lost(proxy: Proxy, open_store: Open) -> None:
    store = open_store(replace(endpoint(proxy.url), reply_timeout_s=0.1))
    store.run(incr())
    proxy.silent = True
    with pytest.raises(ReplyLost):
        store.run(incr())
    proxy.silent = False
    assert store.run(incr()) == 3


def test_a_port_without_a_listener_is_unavailable(open_store: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        silent = endpoint(f"redis://127.0.0.1:{deaf.getsockname()[1]}")
        store = open_store(replace(silent, connect_timeout_s=0.05), patience_s=0)
        with pytest.raises(StoreUnavailable) as failed:
            store.run(incr())
    assert type(failed.value) is StoreUnavailable


def test_a_port_without_a_listener_is_tried_until_the_retry_budget_is_exhausted(
    open_store: Open,
) -> None:
    port = free_port()
    store = open_store(f"redis://:secret@127.0.0.1:{port}", patience_s=0.1)
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}/0: ") as failed:
        store.run(incr())
    assert type(failed.value) is StoreUnavailable
    assert "secret" not in str(failed.value)


def test_a_server_that_comes_late_is_found(private_server: Server, open_store: Open) -> None:
    private_server.stop()
    store = open_store(private_server.url)
    late = threading.Timer(0.1, private_server.restart)
    late.start()
    assert store.run(incr()) == 1
    late.join()


def test_a_server_of_another_protocol_is_unavailable(proxy: Proxy, open_store: Open) -> None:
    proxy.instead = [b"HTTP/1.1 400 Bad Request\r\n\r\n"] * 2
    with pytest.raises(StoreUnavailable, match="not Redis protocol"):
        open_store(proxy.url, patience_s=0).run(incr())


def test_an_invalid_reply_closes_the_connection_but_not_the_store(
    proxy: Proxy, open_store: Open
) -> None:
    store = open_store(proxy.url)
    store.run(incr())
    proxy.instead = [b"garbage\r\n"]
    with pytest.raises(ReplyLost):
        store.run(incr())
    assert store.run(incr()) == 2


@pytest.mark.parametrize("says", ["LOADING Redis is loading", "BUSY Redis is busy"])
def test_a_server_that_is_not_ready_is_waited_for(
    proxy: Proxy, open_store: Open, says: str
) -> None:
    store = open_store(proxy.url)
    store.run(incr())
    proxy.instead = [f"-{says}\r\n".encode()] * 3
    assert store.run(incr()) == 2
    assert not proxy.instead


def test_a_server_with_too_many_clients_is_waited_for(
    private_server: Server, open_store: Open
) -> None:
    with redis.Redis.from_url(private_server.url) as guest:
        guest.config_set("maxclients", 1)
        with pytest.raises(StoreUnavailable) as failed:
            open_store(private_server.url, patience_s=0.05).run(incr())
        assert type(failed.value) is StoreUnavailable
        guest.config_set("maxclients", 100)
    assert open_store(private_server.url).run(incr()) == 1


def test_an_idle_connection_that_was_closed_is_replaced_without_an_error(
    store: AnyStore, db: redis.Redis
) -> None:
    for count in range(1, 20):
        assert store.run(incr()) == count
        db.client_kill_filter(_type="normal", skipme=True)


def test_a_loop_too_busy_to_notice_a_closed_connection_loses_no_reply(
    server: Server, db: redis.Redis
) -> None:
    store = Looped(server.url)

    async def scenario() -> int:
        count = 0
        for _ in range(20):
            count = await store.store.run(incr())
            # In the loop's own thread: it sees nothing of this.
            db.client_kill_filter(_type="normal", skipme=True)
        return count

    assert store.wait(scenario()) == 20
    store.close()


def test_flushed_scripts_are_loaded_again(store: AnyStore, db: redis.Redis) -> None:
    with repeating(db.script_flush):
        for count in range(1, 300):
            assert store.run(incr()) == count
        assert store.run_all([add(str(i)) for i in range(500)]) == [str(i) for i in range(500)]
        assert store.run_all([incr("other")] * 500) == list(range(1, 501))


def test_acknowledged_writes_survive_a_crash(private_server: Server, open_store: Open) -> None:
    store = open_store(private_server.url)
    done: list[int] = []
    unsure = 0

    def crash_and_return() -> None:
        private_server.kill()
        private_server.restart()

    crash = threading.Timer(0.1, crash_and_return)
    crash.start()
    while crash.is_alive() or not done or unsure + len(done) < 300:
        try:
            done.append(store.run(incr()))
        except ReplyLost:
            unsure += 1
    crash.join()
    assert sorted(set(done)) == done
    last = store.run(incr())
    assert len(done) < last <= len(done) + unsure + 1
    assert unsure <= 1


def test_killed_connections_mix_up_no_replies_and_lose_nothing(
    store: AnyStore, db: redis.Redis
) -> None:
    over, enough = threading.Event(), Deadline(2.0)
    clients = 50 if isinstance(store, Looped) else 4
    loads = [CallLoad(store, f"{number}", over) for number in range(clients)]
    with repeating(lambda: db.client_kill_filter(_type="normal", skipme=True), every_s=0.05):
        for load in loads:
            load.start()
        try:
            # How long that takes depends on the machine.
            eventually(lambda: enough.passed and sum(load.counted for load in loads) > 100)
        finally:
            over.set()
        for load in loads:
            load.join()
    assert [load.wrong for load in loads] == [[] for _ in loads]
    for load in loads:
        there = db.smembers(f"set-{load.name}")
        assert {member.encode() for member in load.added} <= there
        counted = int(db.get(f"count-{load.name}") or 0)
        assert load.counted <= counted <= load.counted + load.lost


class CallLoad(threading.Thread):
    """A client that records the replies it got."""

    def __init__(self, store: AnyStore, name: str, over: threading.Event) -> None:
        super().__init__(name=name)
        self._store, self._over = store, over
        self.added: set[str] = set()
        self.counted = self.lost = 0
        self.wrong: list[object] = []

    def run(self) -> None:
        turn = 0
        while not self._over.is_set():
            turn += 1
            self._step(f"{self.name}-{turn}")

    def _step(self, member: str) -> None:
        try:
            if (reply := self._store.run(add(member, f"set-{self.name}"))) != member:
                self.wrong.append((member, reply))
            self.added.add(member)
            if (heard := self._store.run(echo(member.encode()))) != member.encode():
                self.wrong.append((member, heard))
            self._count(self._store.run(incr(f"count-{self.name}")))
        except ReplyLost:
            self.lost += 1
        except StoreError as error:
            self.wrong.append(error)

    def _count(self, reply: int) -> None:
        self.counted += 1
        if not self.counted <= reply <= self.counted + self.lost:
            self.wrong.append((self.counted, self.lost, reply))


@contextmanager
def repeating(disturb: Callable[[], object], every_s: float = 0.0) -> Iterator[None]:
    """Call *disturb* again and again, from another thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            disturb()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_connection_lost_with_unwritten_commands_heals(proxy: Proxy, open_store: Open) -> None:
    store = open_store(proxy.url)
    store.run(incr())
    body = b"x" * (4 << 20)
    proxy.cut("request", after=1 << 20)
    assert store.run_all([echo(body), echo(b"small")]) == [body, b"small"]


def test_a_store_reconnects_after_the_server_closed_its_connection(
    proxy: Proxy, open_store: Open
) -> None:
    store = open_store(proxy.url)
    for count in range(1, 4):
        assert store.run(incr()) == count
        assert proxy.connections == count
        proxy.hang_up()
        eventually(lambda: not proxy._links)
