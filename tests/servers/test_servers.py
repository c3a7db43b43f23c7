"""The servers that other tests rely on."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from tests.servers import Server, binaries, eventually, eventually_async
from tests.servers.ports import free_ports
from tests.servers.refusal import refusing_writes
from tests.servers.tls import certificate


def debian() -> Path:
    if (binary := binaries.debian_redis()) is None:
        pytest.skip("no redis-server on PATH, and it cannot be installed unasked")
    return binary


def ask(url: str, *command: str, **options: str) -> object:
    with redis.Redis.from_url(url, decode_responses=True, **options) as client:
        return client.execute_command(*command)


def test_a_server_answers_on_its_port_and_its_socket() -> None:
    with Server(binaries.valkey()) as server:
        ask(server.url, "SET", "a", "1")
        assert ask(server.unix_url, "GET", "a") == "1"


def test_a_server_refuses_writes_also_if_its_file_is_being_rewritten(
    private_server: Server,
) -> None:
    ask(private_server.url, "MSET", *(word for number in range(10) for word in (str(number), "x")))
    ask(private_server.url, "CONFIG", "SET", "rdb-key-save-delay", "50000")
    ask(private_server.url, "BGREWRITEAOF")
    with refusing_writes(private_server, "MISCONF"), pytest.raises(redis.ResponseError):
        ask(private_server.url, "SET", "a", "1")
    assert ask(private_server.url, "SET", "a", "1") is True


def test_closing_a_server_removes_its_directory_and_process() -> None:
    with Server(binaries.valkey()) as server:
        pid, folder = server.pid, server.dir
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_restarted_server_keeps_its_port_and_what_its_file_holds() -> None:
    with Server(binaries.valkey(), "--appendonly", "yes", "--appendfsync", "always") as server:
        ask(server.url, "SET", "a", "1")
        url = server.url
        server.kill()
        server.restart()
        assert ask(url, "GET", "a") == "1"


def test_two_servers_never_share_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(binaries.valkey()) as first:
        # As if it had been free when it was drawn: only the failing bind shows that it is taken.
        others = [*free_ports()]
        monkeypatch.setattr("tests.servers.run.free_ports", lambda: [first.port, *others])
        with Server(binaries.valkey()) as second:
            assert second.port in others


def test_a_server_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(RuntimeError, match="no-such-option"),
        Server(binaries.valkey(), "--no-such-option", "1"),
    ):
        pass


def test_a_password_is_demanded_and_part_of_the_url() -> None:
    with Server(binaries.valkey(), password="secret") as server:
        assert ask(server.url, "PING") is True
        with pytest.raises(redis.AuthenticationError):
            ask(f"redis://127.0.0.1:{server.port}", "PING")


@pytest.mark.interop
def test_debian_redis_supports_tls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command")
    made = certificate(tmp_path)
    with Server(debian(), certificate=made) as server:
        assert ask(server.url, "PING", ssl_ca_certs=str(made.cert)) is True


@pytest.mark.interop
def test_redis_8_knows_the_newer_stream_commands() -> None:
    if (binary := binaries.redis8(build=False)) is None:
        pytest.skip("no Redis 8: `make servers` builds one")
    with Server(binary) as server:
        assert ask(server.url, "XACKDEL", "stream", "group", "IDS", "1", "1-1") == [-1]


def test_no_server_outlives_a_killed_test_run() -> None:
    code = (
        "import sys; from tests.servers import Server, binaries\n"
        "with Server(binaries.valkey()) as s: print(s.pid, s.dir, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pid, folder = run.stdout.readline().split()
        run.send_signal(signal.SIGKILL)
    try:
        eventually(lambda: not is_running(int(pid)))
    finally:
        shutil.rmtree(folder)


def is_running(pid: int) -> bool:
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return state.stdout.strip() not in {"", "Z", "Zs"}


def test_eventually_returns_the_first_true_value() -> None:
    answers = iter([0, "", 7])
    assert eventually(lambda: next(answers)) == 7


def test_eventually_says_what_it_waited_for() -> None:
    jobs = ["one"]
    with pytest.raises(AssertionError, match=r"lambda: not jobs.* was still False after 0.06 s"):
        eventually(lambda: not jobs, within_s=0.01)


def test_eventually_forgives_a_failed_assertion_until_its_time_is_over() -> None:
    tries = iter(range(3))

    def third_time() -> bool:
        assert next(tries) == 2
        return True

    assert eventually(third_time)


def test_eventually_async_awaits_its_condition() -> None:
    async def soon() -> int:
        await asyncio.sleep(0)
        return 3

    assert asyncio.run(eventually_async(soon)) == 3
