from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq.embedded import ports
from tambomq.embedded.server import Embedded
from tambomq.errors import DataDirBusy, EmbeddedError, PortTaken
from tambomq.machine import half_of_memory
from tests.serve.processes import alive, ask, parent_of
from tests.servers import eventually

OWNER = """
import os, resource, sys
from pathlib import Path
from tambomq.embedded.server import Embedded
files = int(sys.argv[2])
if files:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, files + 256), hard))
    many = [os.dup(0) for _ in range(files)]
server = Embedded(Path(sys.argv[1]), port=0)
server.start()
print(server.url, server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Embedded]:
    with Embedded(tmp_path, port=0) as server:
        yield server


def start_owner(path: Path, files: int = 0) -> tuple[subprocess.Popen[str], str, int]:
    """Another process, with *files* open, that owns a server in *path*; its URL and pid."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), str(files)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    url, pid = owner.stdout.readline().split()
    return owner, url, int(pid)


def kill(owner: subprocess.Popen[str]) -> None:
    owner.kill()
    owner.communicate()


def test_data_is_found_again_at_the_next_start(tmp_path: Path) -> None:
    for number in (1, 2):
        with Embedded(tmp_path, port=0) as server:
            assert ask(server.url, "INCR", "starts") == number
        assert not alive(server.pid)


def test_server_runs_as_a_queue_needs_it(server: Embedded) -> None:
    wanted = {
        b"appendonly": b"yes",
        b"appendfsync": b"everysec",
        b"maxmemory": b"%d" % half_of_memory(),
        b"maxmemory-policy": b"noeviction",
        b"save": b"",
        b"bind": b"127.0.0.1",
    }
    flat = ask(server.admin_url, "CONFIG", "GET", *wanted)
    assert dict(zip(flat[::2], flat[1::2], strict=True)) == wanted


def test_directory_may_have_any_name(tmp_path: Path) -> None:
    with Embedded(tmp_path / "a 'b' \"c\" --ñ" / "d", port=0) as server:
        assert ask(server.url, "PING") == b"PONG"
        assert server.dir.log.exists()


def test_free_port_is_kept_over_restarts(tmp_path: Path) -> None:
    server = Embedded(tmp_path, port=0)
    server.start()
    port = server.port
    server.stop()
    server.start()
    try:
        assert server.port == port
    finally:
        server.stop()


def test_stop_is_harmless_when_nothing_runs(tmp_path: Path) -> None:
    server = Embedded(tmp_path, port=0)
    server.stop()
    with server:
        pass
    server.stop()
    with pytest.raises(EmbeddedError, match="not started"):
        server.poll()


def test_the_error_of_a_second_owner_names_the_first(server: Embedded) -> None:
    with pytest.raises(DataDirBusy) as caught:
        Embedded(server.dir.path, port=0).start()
    assert caught.value.owner == f"process {os.getpid()} at {server.url}"
    assert ask(server.url, "PING") == b"PONG"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_taken_port_is_refused(tmp_path: Path, address: str) -> None:
    with socket.create_server((address, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"127.0.0.1:{port} is taken"):
            Embedded(tmp_path, port=port).start()
    with Embedded(tmp_path, port=port) as server:
        assert server.port == port


def test_a_fixed_port_that_was_just_taken_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "choose", lambda _host, port: port)
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(PortTaken):
        Embedded(tmp_path, port=other.getsockname()[1]).start()


def test_port_where_another_server_answers_is_refused(
    server: Embedded, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "choose", lambda _host, port: port)
    with pytest.raises(PortTaken):
        Embedded(tmp_path_factory.mktemp("other"), port=server.port).start()
    assert ask(server.url, "PING") == b"PONG"


def test_a_free_port_that_was_just_taken_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        choose, taken = ports.choose, [other.getsockname()[1]]
        monkeypatch.setattr(
            ports, "choose", lambda host, port: taken.pop() if taken else choose(host, port)
        )
        with Embedded(tmp_path, port=0) as server:
            assert ask(server.url, "PING") == b"PONG"
        assert not taken


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"cannot listen on 192\.0\.2\.1:0"):
        Embedded(tmp_path, host="192.0.2.1", port=0).start()


def test_a_path_that_cannot_be_a_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match=r"cannot use .*/file for data"):
        Embedded(tmp_path / "file", port=0).start()


def test_killed_owner_leaves_no_server_and_no_lock(tmp_path: Path) -> None:
    owner, url, pid = start_owner(tmp_path)
    ask(url, "SET", "k", "v")
    kill(owner)
    # At once: the new server waits for the old one, not for us.
    with Embedded(tmp_path, port=0) as server:
        assert not alive(pid)
        # Valkey writes to the file before it answers, so a crash of processes loses nothing.
        assert ask(server.url, "GET", "k") == b"v"


def test_an_owner_of_more_files_than_select_knows_has_a_server(tmp_path: Path) -> None:
    owner, url, pid = start_owner(tmp_path, files=1100)
    assert ask(url, "PING") == b"PONG"
    kill(owner)
    eventually(lambda: not alive(pid))


def test_new_owner_waits_for_the_server_of_a_dead_one(tmp_path: Path) -> None:
    owner, url, pid = start_owner(tmp_path)
    ask(url, "SET", "k", "v")
    os.kill(pid, signal.SIGSTOP)
    kill(owner)
    server = Embedded(tmp_path, port=0)
    steps = server.starting()
    try:
        assert [next(steps) for _ in range(3)] == [0.0, 0.0, 0.0]
        assert server.pid == 0
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: next(steps, None) is None)
        assert ask(server.url, "GET", "k") == b"v"
    finally:
        server.stop()


def test_killed_server_is_noticed_and_started_again(server: Embedded) -> None:
    ask(server.url, "SET", "k", "v")
    os.kill(server.pid, signal.SIGKILL)
    assert server.wait() == 128 + signal.SIGKILL
    assert "ended by SIGKILL" in str(server.failure())
    url = server.url
    server.start()
    assert server.url == url
    assert ask(url, "GET", "k") == b"v"


def test_killed_supervisor_leaves_no_server(server: Embedded) -> None:
    first = server.pid
    os.kill(parent_of(first), signal.SIGKILL)
    server.wait()
    server.start()
    assert not alive(first)
    assert ask(server.url, "PING") == b"PONG"


def test_interrupt_of_the_terminal_does_not_reach_the_server(server: Embedded) -> None:
    assert os.getpgid(server.pid) != os.getpgid(0)


def append_log(path: Path) -> Path:
    (found,) = (path / "appendonlydir").glob("*.incr.aof")
    return found


def test_an_incomplete_command_at_the_end_of_the_log_is_dropped(tmp_path: Path) -> None:
    with Embedded(tmp_path, port=0) as server:
        ask(server.url, "SET", "whole", "1")
    with append_log(tmp_path).open("ab") as log:
        log.write(b"*3\r\n$3\r\nSET\r\n$4\r\nha")
    with Embedded(tmp_path, port=0) as server:
        assert ask(server.url, "MGET", "whole", "half") == [b"1", None]


def test_damaged_data_is_refused_in_the_words_of_the_server(tmp_path: Path) -> None:
    with Embedded(tmp_path, port=0) as server:
        ask(server.url, "SET", "k", "v")
    append_log(tmp_path).write_bytes(b"this is no command\r\n" * 3)
    with pytest.raises(EmbeddedError, match="Bad file format reading the append only file"):
        Embedded(tmp_path, port=0).start()
