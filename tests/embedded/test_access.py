"""Users of the embedded server: their rights, passwords, and the modes of their files."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import hiredis
import pytest

from tambomq.embedded import access, datadir, ports
from tambomq.embedded.server import Embedded
from tambomq.errors import StoreFull, StoreRefused, StoreUnavailable
from tambomq.rsmq import AsyncRsmq, Rsmq
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.local_login import local_login
from tambomq.store.sync import Store
from tests.serve.processes import ask

ADMINISTRATION = [
    ("CONFIG", "SET", "appendonly", "no"),
    ("CONFIG", "GET", "dir"),
    ("CONFIG", "REWRITE"),
    ("REPLICAOF", "127.0.0.1", "1"),
    ("SLAVEOF", "127.0.0.1", "1"),
    ("SHUTDOWN", "NOSAVE"),
    ("DEBUG", "SLEEP", "0"),
    ("MODULE", "LOAD", "/tmp/x.so"),
    ("ACL", "SETUSER", "me", "on", "nopass", "+@all"),
    ("ACL", "LIST"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SWAPDB", "0", "1"),
    ("FAILOVER",),
    ("PSYNC", "?", "-1"),
    ("MONITOR",),
    ("BGREWRITEAOF",),
    ("SAVE",),
    ("MIGRATE", "127.0.0.1", "1", "key", "0", "1"),
    ("CLIENT", "PAUSE", "1"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("EVAL", "return redis.call('FLUSHALL')", "0"),
    ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('f', function() return 1 end)"),
    ("FUNCTION", "DELETE", "x"),
    ("FUNCTION", "FLUSH"),
    ("FUNCTION", "RESTORE", "x"),
    ("SCRIPT", "DEBUG", "SYNC"),
    ("CLUSTER", "RESET"),
    ("LATENCY", "RESET"),
]
# What npm rsmq, BullMQ, ioredis, redis-py, redis-cli and our own clients send.
USED_BY_CLIENTS = [
    ("INFO",),
    ("HELLO",),
    ("SELECT", "1"),
    ("COMMAND", "INFO", "XADD"),
    ("COMMAND", "DOCS", "XADD"),
    ("CLIENT", "SETNAME", "me"),
    ("CLIENT", "SETINFO", "LIB-NAME", "me"),
    ("CLIENT", "ID"),
    ("CLIENT", "LIST"),
    ("CLIENT", "UNBLOCK", "0"),
    ("SCRIPT", "LOAD", "return 1"),
    ("EVAL", "return redis.call('INCR', KEYS[1])", "1", "counter"),
    ("SCAN", "0"),
    ("KEYS", "*"),
    ("SORT", "list"),
    ("ROLE",),
    ("TIME",),
    ("PUBLISH", "channel", "message"),
    ("MEMORY", "USAGE", "counter"),
    ("OBJECT", "FREQ", "nothing"),
    ("XINFO", "HELP"),
    ("WAIT", "0", "0"),
    ("MULTI",),
]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home of its own, where servers are registered."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with Embedded(tmp_path_factory.mktemp("open"), port=0) as server:
        yield server


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("command", ADMINISTRATION, ids=" ".join)
def test_the_default_user_does_no_administration(server: Embedded, command: list[str]) -> None:
    reply = ask(server.url, *command)
    assert isinstance(reply, hiredis.ReplyError)
    # DEBUG and MODULE are switched off besides, for everybody.
    assert any(why in str(reply) for why in ("no permissions to run", "command not allowed"))


@pytest.mark.parametrize("command", USED_BY_CLIENTS, ids=" ".join)
def test_the_default_user_does_what_clients_need(server: Embedded, command: list[str]) -> None:
    reply = ask(server.url, *command)
    assert "permission" not in str(reply)


def test_the_admin_does_everything(server: Embedded) -> None:
    assert ask(server.admin_url, "CONFIG", "SET", "maxclients", "1000") == b"OK"
    assert ask(server.admin_url, "ACL", "WHOAMI") == access.ADMIN.encode()


def test_passwords_stay_over_restarts_and_are_for_the_owner_alone(tmp_path: Path) -> None:
    first = access.prepare(tmp_path, auth=True)
    assert access.prepare(tmp_path, auth=True) == first
    assert first.admin_password != first.password
    names = (access.ADMIN_PASSWORD, "password", access.USERS)
    assert [mode(tmp_path / name) for name in names] == [0o600] * 3
    text = (tmp_path / access.USERS).read_text("utf-8")
    assert first.admin_password not in text
    assert str(first.password) not in text
    assert first.admin_password not in repr(first)


def test_users_that_an_operator_has_saved_are_kept(tmp_path: Path) -> None:
    with Embedded(tmp_path, port=0) as server:
        ask(server.admin_url, "ACL", "SETUSER", "reader", "on", "nopass", "~*", "+get")
        ask(server.admin_url, "ACL", "SETUSER", "default", "+@all")
        assert ask(server.admin_url, "ACL", "SAVE") == b"OK"
    with Embedded(tmp_path, port=0) as server:
        assert ask(server.url.replace("//", "//reader:any@"), "ACL", "WHOAMI") != b"default"
        users = ask(server.admin_url, "ACL", "USERS")
        assert sorted(users) == [b"default", b"reader", access.ADMIN.encode()]
        assert isinstance(ask(server.url, "FLUSHALL"), hiredis.ReplyError)


def test_a_directory_of_an_older_version_is_taken_over(tmp_path: Path) -> None:
    with Embedded(tmp_path, port=0) as server:
        ask(server.url, "SET", "kept", "1")
    for name in (access.ADMIN_PASSWORD, access.USERS):
        (tmp_path / name).unlink()
    tmp_path.chmod(0o755)
    with Embedded(tmp_path, port=0) as server:
        assert ask(server.url, "GET", "kept") == b"1"
        assert isinstance(ask(server.url, "FLUSHALL"), hiredis.ReplyError)
    assert mode(tmp_path) == 0o700


def test_a_full_server_refuses_and_is_not_killed(tmp_path: Path) -> None:
    with Embedded(tmp_path, port=0, maxmemory_bytes=4 << 20) as server, Rsmq(server.url) as rsmq:
        rsmq.create_queue("full", maxsize=-1)
        with pytest.raises(StoreFull):
            _fill(rsmq, count=100)
        assert 0 < rsmq.get_queue_attributes("full").msgs < 100


def _fill(rsmq: Rsmq, *, count: int) -> None:
    for _ in range(count):
        rsmq.send_message("full", b"x" * 100_000)


# ── with a password ──────────────────────────────────────────────────────────


async def test_with_auth_our_clients_find_the_password_and_others_need_it(tmp_path: Path) -> None:
    with Embedded(tmp_path / "data", port=0, auth=True) as server:
        assert "NOAUTH" in str(ask(server.url, "GET", "key"))
        assert ask(server.login_url, "ACL", "WHOAMI") == b"default"
        assert isinstance(ask(server.login_url, "FLUSHALL"), hiredis.ReplyError)
        by_socket = f"unix://{tmp_path}/data/valkey.sock"
        for number, url in enumerate((server.url, by_socket)):
            with Rsmq(url) as rsmq:
                rsmq.create_queue(f"found-{number}")
            async with AsyncRsmq(url) as client:
                assert f"found-{number}" in await client.list_queues()
        wrong = server.url.replace("//", "//:wrong@")
        with pytest.raises(StoreRefused):
            Store(wrong).run(Call("PING", (), (), bool))
    assert local_login(("127.0.0.1", server.port)) == ("", "")


def test_a_server_without_auth_is_open_again(tmp_path: Path) -> None:
    with Embedded(tmp_path, port=0, auth=True) as closed:
        port = closed.port
    with Embedded(tmp_path, port=port) as server, Rsmq(server.url) as rsmq:
        assert rsmq.list_queues() == []
        assert server.login_url == server.url
        with Rsmq(f"unix://{server.dir.socket}") as by_socket:
            assert by_socket.list_queues() == []


def test_no_password_is_sent_to_another_process_on_the_port_of_a_dead_server(
    tmp_path: Path,
) -> None:
    server = Embedded(tmp_path / "data", port=0, auth=True)
    server.start()
    entry = tmp_path / "home/tambomq/servers" / str(server.port)
    try:
        assert local_login(("127.0.0.1", server.port))[0] == "default"
        assert local_login(("10.0.0.1", server.port)) == ("", "")
        text = entry.read_text("utf-8")
    finally:
        server.stop()
    # As a process that was killed leaves it behind.
    entry.write_text(text, "utf-8")
    assert local_login(("127.0.0.1", server.port)) == ("", "")


async def test_no_password_is_sent_to_the_same_port_of_another_address(tmp_path: Path) -> None:
    ping = Call("PING", (), (), bool)
    with Embedded(tmp_path / "data", port=0, auth=True) as server:
        heard: list[bytes] = []
        # A machine has the one or the other; `localhost` may mean ::1.
        for host in ("::1", "127.0.0.2"):
            with suppress(OSError), _stranger(host, server.port, heard) as url:
                with pytest.raises(StoreUnavailable):
                    Store(url, patience_s=0).run(ping)
                store = AsyncStore(url, patience_s=0)
                with pytest.raises(StoreUnavailable):
                    await store.run(ping)
                await store.close()
    assert len(heard) >= 2
    assert not any(b"AUTH" in each for each in heard)


def test_localhost_is_sent_the_password_of_the_server_it_leads_to(tmp_path: Path) -> None:
    with (
        Embedded(tmp_path / "data", port=0, auth=True) as server,
        Rsmq(server.url.replace("127.0.0.1", "localhost")) as rsmq,
    ):
        assert rsmq.list_queues() == []


@contextmanager
def _stranger(host: str, port: int, heard: list[bytes]) -> Iterator[str]:
    """Listen at *host*, note what each client says first, and hang up. Raises `OSError`."""

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer, _ = listening.accept()
                with peer:
                    heard.append(peer.recv(1000))

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    threading.Thread(target=serve, args=(listening,), daemon=True).start()
    try:
        yield ports.url(host, port)
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def test_the_server_starts_though_the_data_home_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with Embedded(tmp_path / "data", port=0, auth=True) as server:
        assert ask(server.login_url, "PING") == b"PONG"
        assert server.client_url == server.login_url != server.url


# ── files ────────────────────────────────────────────────────────────────────


def test_files_in_the_data_directory_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    with Embedded(data, port=0) as server:
        ask(server.url, "SET", "key", "secret")
        assert mode(data) == 0o700
        for each in data.rglob("*"):
            assert not mode(each) & 0o077, each


@pytest.mark.parametrize("found", [0o755, 0o777, 0o2770])
def test_a_directory_that_existed_becomes_private(tmp_path: Path, found: int) -> None:
    path = tmp_path / "existing"
    path.mkdir()
    path.chmod(found)
    datadir.make_private(path)
    assert mode(path) & 0o777 == 0o700


def test_a_world_writable_directory_keeps_its_mode_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o1777)
    datadir.make_private(tmp_path)
    assert mode(tmp_path) == 0o1777
    assert "other users can read" in caplog.text


def test_the_unix_socket_works_however_long_its_path_is(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    with Embedded(deep, port=0) as server:
        if server.dir.socket.exists():
            assert ports.info(server.dir.socket)["process_id"] == str(server.pid)
        assert ask(server.url, "PING") == b"PONG"


def test_a_file_system_without_sockets_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "can_have_socket", lambda _path: False)
    with Embedded(tmp_path / "data", port=0, auth=True) as server:
        assert not server.dir.socket.exists()
        assert ask(server.login_url, "PING") == b"PONG"


def test_a_directory_where_no_socket_can_be_created_is_detected(tmp_path: Path) -> None:
    assert ports.can_have_socket(tmp_path / "valkey.sock")
    assert not ports.can_have_socket(tmp_path / "missing" / "valkey.sock")
    assert list(tmp_path.iterdir()) == []
