"""Successful round trips: on both stores first, then those of threads."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tambomq.errors import QueueNotFound, StoreRefused, StoreUnavailable, WrongType
from tambomq.store.call import Call, Plan, results
from tambomq.store.sync import Store
from tests.servers import Server, eventually
from tests.store.conftest import Open
from tests.store.proxy import Proxy
from tests.store.twins import AnyStore, add, command, echo, get, incr


def test_a_call_returns_its_decoded_reply(store: AnyStore) -> None:
    assert store.run(echo(b"a")) == b"a"
    assert store.run(get("nothing")) is None


def test_an_error_of_the_decoder_is_raised(store: AnyStore) -> None:
    def decode(_: object) -> None:
        raise QueueNotFound("orders")

    with pytest.raises(QueueNotFound):
        store.run(Call("GET", ("k",), (), decode))
    assert store.run(echo(b"a")) == b"a"


def test_a_decoder_with_a_mistake_leaves_the_connection_in_step(store: AnyStore) -> None:
    with pytest.raises(TypeError):
        store.run(Call("GET", ("nothing",), (), decode=int))
    assert store.run(echo(b"a")) == b"a"


def test_a_call_that_cannot_be_encoded_leaves_the_connection_in_sync(store: AnyStore) -> None:
    wrong: Any = object()
    with pytest.raises(TypeError):
        store.run(Call("GET", ("k",), (wrong,), decode=bytes))
    assert store.run(echo(b"a")) == b"a"


def test_no_calls_make_no_round_trip(open_store: Open) -> None:
    assert open_store("redis://127.0.0.1:1", patience_s=0).run_all([]) == []


def test_many_calls_make_one_round_trip(proxy: Proxy, open_store: Open) -> None:
    store = open_store(proxy.url)
    store.run(echo(b"warm"))
    before = proxy.requests
    assert store.run_all([incr() for _ in range(100)]) == list(range(1, 101))
    assert proxy.requests == before + 1


def test_calls_are_done_in_order_even_when_their_scripts_are_unknown(
    store: AnyStore, db: redis.Redis
) -> None:
    calls: list[Call[Any]] = [get("count"), incr(), get("count"), incr(), get("count")]
    for _ in range(2):
        db.flushall()
        db.script_flush()
        assert store.run_all(calls) == [None, 1, b"1", 2, b"2"]


def test_one_error_among_many_is_returned_beside_the_replies(
    store: AnyStore, db: redis.Redis
) -> None:
    db.set("members", "no set")
    count, wrong, text = store.outcomes([incr(), add("a"), echo(b"a")])
    assert (count, text) == (1, b"a")
    assert isinstance(wrong, WrongType)
    both: list[Call[Any]] = [incr(), add("a")]
    with pytest.raises(WrongType):
        store.run_all(both)


def test_a_plan_makes_its_round_trips_in_order(store: AnyStore) -> None:
    def count_to(goal: int) -> Plan[list[int]]:
        seen: list[int] = []
        while len(seen) < goal:
            seen += results((yield [incr(), incr()]))
        return seen

    assert store.follow(count_to(6)) == [1, 2, 3, 4, 5, 6]


def test_a_plan_gets_errors_and_may_continue(store: AnyStore, db: redis.Redis) -> None:
    db.set("members", "no set")

    def careful() -> Plan[tuple[str, object]]:
        (first,) = yield [add("a")]
        (second,) = yield [echo(b"b")]
        return type(first).__name__, second

    assert store.follow(careful()) == ("WrongType", b"b")


@pytest.mark.parametrize(
    "size", [0, 1, 1 << 16, (1 << 16) + 1, pytest.param(64 << 20, marks=pytest.mark.slow)]
)
def test_a_body_of_any_size_is_returned_completely(store: AnyStore, size: int) -> None:
    body = (os.urandom(1 << 16) * ((size >> 16) + 1))[:size]
    assert store.run(echo(body)) == body


def test_a_closed_store_opens_again_for_the_next_call(store: AnyStore) -> None:
    assert store.run(incr()) == 1
    if isinstance(store, Store):
        store.close()
    assert store.run(incr()) == 2


# ── threads ──────────────────────────────────────────────────────────────────


def test_threads_share_a_store_and_each_gets_its_own_replies(server: Server) -> None:
    store = Store(server.url)

    def work(name: int) -> bool:
        texts = [f"{name}-{turn}".encode() for turn in range(200)]
        return [store.run(echo(text)) for text in texts] == texts

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8)))
    store.close()


def test_threads_lose_no_call_while_another_closes_the_idle_connections(server: Server) -> None:
    store, over = Store(server.url), threading.Event()

    def close_until_over() -> None:
        while not over.is_set():
            store.close()

    switch_interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        closing = threading.Thread(target=close_until_over)
        closing.start()
        with ThreadPoolExecutor(8) as threads:
            # A call whose connection was closed under it would raise `ReplyLost`: it is not
            # repeatable.
            done = list(threads.map(lambda _: store.run(incr()), range(800)))
        over.set()
        closing.join()
    finally:
        over.set()
        sys.setswitchinterval(switch_interval_s)
    assert sorted(done) == list(range(1, 801))
    store.close()


class _TakenMeanwhile(deque[Any]):
    """Idle connections of which another thread takes the last just after it was seen."""

    def __bool__(self) -> bool:
        seen = len(self) > 0
        if seen:
            other = threading.Thread(target=lambda: self.pop().close())
            other.start()
            other.join()
        return seen


def test_a_call_connects_when_another_thread_takes_the_last_idle_connection(
    server: Server,
) -> None:
    store = Store(server.url)
    assert store.run(incr()) == 1
    for node, idle in store._idle.items():
        store._idle[node] = _TakenMeanwhile(idle)
    assert store.run(incr()) == 2
    store.close()


def test_close_takes_what_was_idle_and_nothing_that_a_thread_uses(server: Server) -> None:
    store = Store(server.url)
    store.run(echo(b"a"))
    [(node, idle)] = store._idle.items()
    used = idle.pop()
    store.close()
    assert used.exchange(b"PING\r\n", 1) == [b"PONG"]
    store._return_idle(node, used)
    store.close()
    assert not used.is_usable


def test_one_thread_needs_one_connection(server: Server, db: redis.Redis) -> None:
    store = Store(server.url)
    before = int(db.info("stats")["total_connections_received"])
    for _ in range(50):
        store.run(incr())
    assert db.info("stats")["total_connections_received"] == before + 1
    store.close()


def test_close_leaves_no_connection(server: Server, db: redis.Redis) -> None:
    store = Store(server.url)
    store.run(incr())
    with store.listen("news"):
        pass
    store.close()
    eventually(lambda: not [c for c in db.client_list() if c["name"] == "tambomq"])


def test_a_forked_child_makes_its_own_connections(server: Server, db: redis.Redis) -> None:
    store = Store(server.url)
    store.run(incr())
    child = os.fork()
    if child == 0:
        try:
            good = [store.run(echo(b"child")) for _ in range(100)] == [b"child"] * 100
            store.run(incr("children"))
            os._exit(0 if good else 1)
        finally:
            os._exit(2)
    for _ in range(100):
        assert store.run(echo(b"parent")) == b"parent"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert db.get("children") == b"1"
    assert store.run(incr()) == 2
    store.close()


# ── listening ────────────────────────────────────────────────────────────────


def test_a_published_message_is_received(server: Server, db: redis.Redis) -> None:
    store = Store(server.url)
    with store.listen("news") as news:
        assert not news.wait(0)
        for _ in range(3):
            db.publish("news", "x")
        assert news.wait(30)
        eventually(lambda: not news.wait(0))
        assert news.is_usable
    assert store.run(echo(b"a")) == b"a"
    store.close()


def test_other_calls_go_on_while_one_listens(server: Server) -> None:
    store = Store(server.url)
    with store.listen("news") as news:
        assert store.run(Call("PUBLISH", (), ("news", "x"), decode=int)) == 1
        assert news.wait(30)
    store.close()


def test_a_subscription_reports_a_lost_connection_and_a_new_one_works(
    server: Server, db: redis.Redis
) -> None:
    store = Store(server.url)
    with store.listen("news") as news:
        db.client_kill_filter(_type="pubsub")
        # A message may have been missed: wake the waiter so that it checks.
        assert news.wait(30)
        assert not news.is_usable
    with store.listen("news") as news:
        db.publish("news", "x")
        assert news.wait(30)
        assert news.is_usable
    store.close()


def test_a_channel_that_is_not_for_us_is_refused(server: Server, db: redis.Redis) -> None:
    command(db, "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels")
    store = Store(f"redis://deaf:pw@127.0.0.1:{server.port}")
    with pytest.raises(StoreRefused, match="NOPERM"), store.listen("news"):
        pass
    store.close()
    command(db, "ACL", "DELUSER", "deaf")


def test_listening_waits_for_a_server_and_not_for_ever() -> None:
    store = Store("redis://127.0.0.1:1", patience_s=0.05)
    with pytest.raises(StoreUnavailable), store.listen("news"):
        pass


def test_a_listener_heals_when_the_server_is_back(private_server: Server) -> None:
    store = Store(private_server.url)
    private_server.stop()
    late = threading.Timer(0.1, private_server.restart)
    late.start()
    with store.listen("news") as news:
        store.run(Call("PUBLISH", (), ("news", "x"), decode=int))
        assert news.wait(30)
    late.join()
    store.close()
