"""Logging in: users, tokens, TLS, socket files, on both stores."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from unittest.mock import Mock

import hiredis
import pytest
import redis

from tambomq.errors import StoreFull, StoreRefused, StoreUnavailable, WrongType
from tambomq.store import sync_connection as connection
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.endpoint import Endpoint, Tls, endpoint
from tambomq.store.sync_connection import SyncConnection
from tests.servers import Server, binaries, eventually
from tests.servers.tls import Certificate, certificate
from tests.store.conftest import Open
from tests.store.twins import AnyStore, add, command, echo, get, incr


@pytest.fixture
def user(db: redis.Redis) -> Iterator[Callable[..., None]]:
    """A function that gives the user "me" a password, and what it may do."""

    def set_user(password: str, *rules: str) -> None:
        command(db, "ACL", "SETUSER", "me", "reset", "on", f">{password}", *rules)

    yield set_user
    command(db, "ACL", "DELUSER", "me")


def url_of(server: Server, login: str, rest: str = "") -> str:
    return f"redis://{login}@127.0.0.1:{server.port}{rest}"


def test_a_user_with_the_right_password_can_log_in(
    server: Server, user: Callable[..., None], open_store: Open
) -> None:
    user("p/w", "~*", "+@all")
    assert open_store(url_of(server, "me:p%2Fw")).run(incr()) == 1


def test_a_wrong_password_is_refused_at_once(
    server: Server, user: Callable[..., None], open_store: Open
) -> None:
    user("pw", "~*", "+@all")
    store = open_store(url_of(server, "me:hunter2"))
    with pytest.raises(StoreRefused, match="WRONGPASS") as refused:
        store.run(incr())
    assert "hunter2" not in str(refused.value)
    assert all(isinstance(outcome, StoreRefused) for outcome in store.outcomes([incr(), incr()]))


def test_a_missing_password_is_refused(open_store: Open) -> None:
    with Server(binaries.valkey(), password="secret") as server:
        assert open_store(server.url).run(incr()) == 1
        with pytest.raises(StoreRefused, match="NOAUTH"):
            open_store(f"redis://127.0.0.1:{server.port}").run(incr())


def test_a_key_that_is_not_for_us_is_refused(
    server: Server, user: Callable[..., None], open_store: Open
) -> None:
    user("pw", "~ours:*", "+@all", "-client")
    store = open_store(url_of(server, "me:pw"))
    assert store.run(incr("ours:count")) == 1
    with pytest.raises(StoreRefused, match="NOPERM"):
        store.run(get("theirs"))


def test_a_database_that_is_not_there_is_refused(server: Server, open_store: Open) -> None:
    with pytest.raises(StoreRefused, match="DB index"):
        open_store(f"{server.url}/99").run(incr())


def test_databases_do_not_share_keys(server: Server, open_store: Open, db: redis.Redis) -> None:
    assert open_store(f"{server.url}/3").run(incr()) == 1
    assert open_store(f"{server.unix_url}?db=4").run(incr()) == 1
    assert db.get("count") is None


def test_a_socket_file_leads_to_the_same_server(
    server: Server, open_store: Open, db: redis.Redis
) -> None:
    store = open_store(server.unix_url)
    assert store.run(incr()) == 1
    assert store.run_all([add("a"), add("b")]) == ["a", "b"]
    assert db.get("count") == b"1"


def test_a_socket_file_that_is_not_there_is_unavailable(tmp_path: Path, open_store: Open) -> None:
    store = open_store(f"unix://{tmp_path}/no.sock", patience_s=0)
    with pytest.raises(StoreUnavailable, match=r"no\.sock: .*No such file"):
        store.run(incr())


def test_an_unknown_host_is_unavailable(open_store: Open) -> None:
    for host in ("no-such-host.invalid", "a..b"):
        with pytest.raises(StoreUnavailable, match=host):
            open_store(f"redis://{host}", patience_s=0).run(incr())


def test_a_full_server_says_so_and_nothing_was_done(
    private_server: Server, open_store: Open
) -> None:
    store = open_store(private_server.url)
    store.run(incr())
    with redis.Redis.from_url(private_server.url) as admin:
        admin.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            store.run(incr())
        admin.config_set("maxmemory", 0)
    assert store.run(incr()) == 2


def test_a_key_of_another_type_is_named(store: AnyStore, db: redis.Redis) -> None:
    db.set("members", "no set")
    with pytest.raises(WrongType, match="members"):
        store.run(add("a"))


def test_a_rotating_token_is_fetched_for_each_connection(
    server: Server, user: Callable[..., None], open_store: Open, db: redis.Redis
) -> None:
    tokens = ["first"]
    user("first", "~*", "+@all")
    store = open_store(server.url, credentials=lambda: ("me", tokens[-1]))
    assert store.run(incr()) == 1
    tokens.append("second")
    user("second", "~*", "+@all")
    db.client_kill_filter(user="me")
    assert store.run(incr()) == 2


def test_a_provider_may_have_to_be_awaited(
    server: Server, user: Callable[..., None], open_store: Open
) -> None:
    user("pw", "~*", "+@all")

    async def later() -> tuple[str, str]:
        return "me", "pw"

    assert open_store(server.url, credentials=later).run(incr()) == 1


# ── TLS ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command")
    return certificate(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def secured(ours: Certificate) -> Iterator[Server]:
    """A TLS server that requires client certificates of its CA."""
    if (binary := binaries.debian_redis()) is None:
        pytest.skip("no redis-server on PATH, and it cannot be installed unasked")
    with Server(binary, "--tls-auth-clients", "yes", certificate=ours) as server:
        yield server


@pytest.mark.interop
def test_tls_with_both_certificates_lets_us_in(
    secured: Server, ours: Certificate, open_store: Open
) -> None:
    options = f"?ca={ours.cert}&cert={ours.cert}&key={ours.key}"
    body = b"x" * (1 << 20)
    assert open_store(secured.url + options).run(echo(body)) == body
    tls = Tls(str(ours.cert), str(ours.cert), str(ours.key))
    assert open_store(secured.url, tls=tls).run_all([echo(b"a"), echo(b"b")]) == [b"a", b"b"]


@pytest.mark.interop
async def test_a_closed_tls_connection_does_not_wait_for_the_server(
    secured: Server, ours: Certificate
) -> None:
    store = AsyncStore(f"{secured.url}?ca={ours.cert}&cert={ours.cert}&key={ours.key}")
    assert await store.run(echo(b"x")) == b"x"
    [connection] = store._loop_state().connections.values()
    assert connection._transport is not None
    socket = connection._transport.get_extra_info("socket")
    assert socket.fileno() != -1
    await store.close()
    assert socket.fileno() == -1


@pytest.mark.interop
def test_tls_without_the_required_client_certificate_is_refused(
    secured: Server, ours: Certificate, open_store: Open
) -> None:
    store = open_store(f"{secured.url}?ca={ours.cert}", patience_s=0)
    # The server's own words, "certificate required", are lost when it hangs up too soon.
    with pytest.raises(StoreUnavailable, match="cannot reach rediss://"):
        store.run(incr())


@pytest.mark.interop
def test_a_server_with_an_untrusted_certificate_is_refused(
    secured: Server, tmp_path: Path, open_store: Open
) -> None:
    stranger = certificate(tmp_path)
    for options in ("", f"?ca={stranger.cert}"):
        with pytest.raises(StoreUnavailable, match=r"(?i)certificate verify failed"):
            open_store(secured.url + options, patience_s=0).run(incr())


@pytest.mark.interop
def test_certificate_checks_can_be_disabled_explicitly(
    secured: Server, ours: Certificate, open_store: Open
) -> None:
    options = f"?verify=no&cert={ours.cert}&key={ours.key}"
    assert open_store(secured.url + options).run(echo(b"a")) == b"a"


@pytest.mark.interop
def test_an_idle_tls_connection_that_was_closed_is_replaced(
    secured: Server, ours: Certificate, open_store: Open
) -> None:
    store = open_store(f"{secured.url}?ca={ours.cert}&cert={ours.cert}&key={ours.key}")
    with redis.Redis.from_url(secured.unix_url) as admin:
        admin.delete("count")
        for count in range(1, 6):
            assert store.run(incr()) == count
            admin.client_kill_filter(_type="normal", skipme=True)


# ── one connection ───────────────────────────────────────────────────────────


def test_a_connection_is_usable_until_either_side_closes_it(
    server: Server, db: redis.Redis
) -> None:
    connection = SyncConnection(endpoint(server.url), ("127.0.0.1", server.port))
    assert connection.is_usable
    db.client_kill_filter(_type="normal", skipme=True)
    assert eventually(lambda: not connection.is_usable)
    connection.close()
    assert not connection.is_usable


def test_an_unexpected_reply_makes_a_connection_unusable(server: Server) -> None:
    connection = SyncConnection(endpoint(server.url), ("127.0.0.1", server.port))
    connection.send(b"PING\r\n")
    assert connection.readable(5)
    assert not connection.is_usable
    connection.close()


def test_a_connection_carries_our_name(store: AnyStore) -> None:
    listed = Call("CLIENT LIST", (), (), decode=bytes.decode)
    assert "name=tambomq" in store.run(listed)


def test_one_thread_busy_polls_and_none_for_a_while_after_contention() -> None:
    turnstile = connection._PollGate()
    assert turnstile.enter(10.0)
    assert not turnstile.enter(10.0)
    turnstile.leave()
    assert not turnstile.enter(10.0)
    assert turnstile.enter(10.0 + connection._CLOSED_FOR_S)


def test_a_slow_server_is_waited_for_without_busy_polling(server: Server) -> None:
    line = SyncConnection(endpoint(server.url), ("127.0.0.1", server.port))
    slow = hiredis.pack_command(("BLPOP", "nothing", "0.01"))
    assert line.exchange(slow, 1) == [None]
    assert not line._is_fast
    # One quick reply is enough to look for the next.
    eventually(lambda: line.exchange(hiredis.pack_command(("PING",)), 1) and line._is_fast)
    line.close()


def test_a_long_reply_that_arrives_fast_does_not_make_a_slow_server_fast(server: Server) -> None:
    line = SyncConnection(endpoint(server.url), ("127.0.0.1", server.port))
    script = (
        "local e = os.clock() + 0.01 while os.clock() < e do end return string.rep('x', 4000000)"
    )
    assert len(line.exchange(hiredis.pack_command(("EVAL", script, 0)), 1)[0]) == 4_000_000
    assert not line._is_fast
    line.close()


def test_nothing_is_busy_polled_after_a_pause(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = SyncConnection(endpoint(server.url), ("127.0.0.1", server.port))
    gate, clock = Mock(enter=Mock(return_value=True)), Mock(perf_counter=Mock(return_value=1.0))
    monkeypatch.setattr(connection, "_POLL_GATE", gate)
    monkeypatch.setattr(connection, "time", clock)
    line._is_local = line._is_fast = True
    for pause, is_polled in ((0.9, True), (1.1, False), (0.9, True)):
        line._received_at = 1.0 - pause * connection.PAUSE_S
        assert line.exchange(hiredis.pack_command(("PING",)), 1) == [b"PONG"]
        assert gate.leave.called is is_polled
        gate.leave.reset_mock()
    line.close()


def test_a_busy_poll_lets_the_server_have_the_core(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = SyncConnection(endpoint(server.url), ("127.0.0.1", server.port))
    yielded = Mock()
    monkeypatch.setattr(connection, "_POLL_GATE", Mock())
    monkeypatch.setattr(connection, "_yield_core", yielded)
    monkeypatch.setattr(line, "_poll", Mock(poll=Mock(side_effect=[[], [], [(0, 1)]])))
    line._busy_poll(inf)
    assert yielded.call_count == 2
    line.close()


def test_a_remote_server_is_always_waited_for_without_busy_polling() -> None:
    state = Endpoint()
    assert connection.is_local(state, ("127.0.0.1", 6379)) == (os.cpu_count() != 1)
    assert not connection.is_local(state, ("192.0.2.1", 6379))
    assert not connection.is_local(replace(state, tls=Tls()), ("127.0.0.1", 6379))
