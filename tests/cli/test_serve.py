from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import tambomq
from tests.serve.processes import (
    FREE_PORTS,
    Serving,
    alive,
    ask,
    clean_environment,
    parent_of,
    server_pid,
    serving,
    tambo,
)
from tests.servers import Server, binaries, eventually

COMMAND = f"{sys.executable} -c 'from tambomq.cli.main import main; main()'"

COMPONENTS = ["redis", "data", "rsmq", "chasqui", "gomq", "kqueue", "http"]


def is_closed(url: str) -> bool:
    try:
        ask(url, "PING")
    except OSError:
        return True
    return False


def test_it_prints_the_address_of_every_component(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        assert ask(serve.url, "PING") == b"PONG"
        first, _, head, *rows = serve.stdout.splitlines()
        assert first == f"TamboMQ {tambomq.__version__} is ready. Ctrl-C stops it."
        assert head.split() == ["what", "where", "about"]
        assert [row.split()[0] for row in rows[: len(COMPONENTS)]] == COMPONENTS
        assert serve.url in rows[0]
        assert str(tmp_path / "data") in rows[1]
        assert all(each["address"] in serve.stdout for each in serve.ready["endpoints"].values())


def test_the_ready_file_has_addresses_and_the_pid(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        assert serve.ready["pid"] == serve.process.pid
        assert list(serve.ready["endpoints"]) == COMPONENTS
        assert serve.ready["endpoints"]["data"]["address"] == str(tmp_path / "data")
        assert [p.name for p in tmp_path.iterdir() if "ready" in p.name] == ["ready.json"]


def test_json_is_one_object_and_the_same_as_the_ready_file(tmp_path: Path) -> None:
    with serving(tmp_path, "--json") as serve:
        ready = serve.ready
        assert json.loads(serve.stdout) == ready


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_everything_in_order(tmp_path: Path, how: signal.Signals) -> None:
    with serving(tmp_path) as serve:
        url, pid = serve.url, server_pid(serve.url)
        assert serve.end(how) == 0
        assert not alive(pid)
        assert is_closed(url)
        assert not serve.ready_file.exists()
        assert f"stopping on {how.name}" in serve.stderr
        assert "bye bye" in (tmp_path / "data" / "valkey.log").read_text()


def test_second_signal_ends_at_once_and_leaves_no_server(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        pid = server_pid(serve.url)
        os.kill(pid, signal.SIGSTOP)  # a server that takes its time
        serve.process.send_signal(signal.SIGINT)
        eventually(lambda: "stopping on SIGINT" in serve.stderr)
        assert serve.end(signal.SIGINT) == 130
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: not alive(pid))


@pytest.mark.slow
def test_signal_while_it_waits_for_an_old_server_ends_it(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        pid = server_pid(first.url)
        os.kill(pid, signal.SIGSTOP)
        first.end(signal.SIGKILL)
    with serving(tmp_path, "--log-level", "debug") as second:
        signed = f"process {second.process.pid}\n"
        eventually(lambda: (tmp_path / "data" / "lock").read_text() == signed)
        assert second.end(signal.SIGTERM) == 0
    os.kill(pid, signal.SIGCONT)
    eventually(lambda: not alive(pid))


def test_killed_serve_leaves_no_server_and_the_next_has_all_data(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        pid = server_pid(serve.url)
        for number in range(1000):
            ask(serve.url, "RPUSH", "confirmed", str(number))
        serve.end(signal.SIGKILL)
        eventually(lambda: not alive(pid))
    # No waiting for the fsync of every second: that is about power cuts. Valkey writes a command
    # to its file before it answers, so whatever was confirmed outlives every process.
    with serving(tmp_path) as serve:
        assert ask(serve.url, "LLEN", "confirmed") == 1000


@pytest.mark.slow
def test_kill_of_the_whole_family_leaves_no_stale_lock(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        ask(serve.url, "SET", "k", "v")
        pid = server_pid(serve.url)
        keeper = parent_of(pid)
        for each in (serve.process.pid, keeper, pid):
            os.kill(each, signal.SIGKILL)
        eventually(lambda: not alive(pid))
    with serving(tmp_path) as serve:
        assert ask(serve.url, "GET", "k") == b"v"


@pytest.mark.slow
def test_second_serve_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with serving(tmp_path) as serve:
        url = serve.url
        second = tambo("serve", "--data-dir", data, *FREE_PORTS, cwd=tmp_path)
        assert second.returncode == 1
        assert second.stdout == ""
        assert second.stderr == (
            f"tambo: {data} is in use by process {serve.process.pid} at {url}: "
            "use that one, or choose another directory with --data-dir\n"
        )
        assert ask(url, "PING") == b"PONG"


def test_taken_port_names_both_ways_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        flags = ["--data-dir", str(tmp_path / "data"), *FREE_PORTS, "--redis-port", str(port)]
        refused = tambo("serve", *flags, cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == (
        f"tambo: 127.0.0.1:{port} is taken: use it with --redis-url redis://127.0.0.1:{port}, "
        f"or choose another port with --redis-port {port + 1}\n"
    )


def killed(serve: Serving, pid: int) -> int:
    """Kill the server and return the pid of the one that takes its place."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not is_closed(serve.url) and server_pid(serve.url) != pid)
    return server_pid(serve.url)


def test_a_killed_server_is_restarted_with_its_data(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        ask(serve.url, "SET", "k", "v")
        second = killed(serve, server_pid(serve.url))
        # It answers while it loads, though not this.
        eventually(lambda: ask(serve.url, "GET", "k") == b"v")
        killed(serve, second)
        eventually(lambda: ask(serve.url, "GET", "k") == b"v")
        assert "ended by SIGKILL" in serve.stderr
        assert serve.end(signal.SIGTERM) == 0


def test_a_given_server_is_used_and_not_stopped(tmp_path: Path) -> None:
    with Server(binaries.valkey(), password="s3cret") as given:
        with serving(tmp_path, "--redis-url", given.url) as serve:
            assert serve.url == given.url.replace("s3cret", "***")
            assert serve.end(signal.SIGTERM) == 0
        assert "s3cret" not in serve.stdout + serve.stderr
        assert not (tmp_path / "data").exists()
        assert alive(given.pid)


def test_unreachable_server_is_named_without_its_password(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    url = f"redis://:s3cret@127.0.0.1:{port}"
    refused = tambo("serve", *FREE_PORTS, "--redis-url", url, cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("tambo: ")
    assert f"127.0.0.1:{port}" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert "s3cret" not in refused.stderr


def test_wrong_setting_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "tambo.toml").write_text("[server]\nredis_prot = 1\n")
    refused = tambo("serve", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "tambo: tambo.toml: no key redis_prot in [server]; did you mean redis_port?\n"
    )


def test_an_unknown_variable_is_warned_of_and_those_of_kubernetes_are_not(tmp_path: Path) -> None:
    ours = {"TAMBO_REDIS_PRT": "1", "TAMBO_GOMQ_PORT": "tcp://10.0.0.1:10001"}
    refused = tambo("serve", "--ready-file", str(tmp_path / "no" / "r"), cwd=tmp_path, **ours)
    warning, fault = refused.stderr.splitlines()
    assert " WARNING cli.serve  TAMBO_REDIS_PRT: no such variable, it is ignored;" in warning
    assert "--ready-file: cannot write" in fault


def test_ready_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    flags = ["--data-dir", str(tmp_path / "data"), *FREE_PORTS]
    refused = tambo("serve", *flags, "--ready-file", str(tmp_path / "no" / "r"), cwd=tmp_path)
    assert refused.returncode == 2
    assert "--ready-file: cannot write" in refused.stderr


def test_serve_goes_on_when_its_output_is_not_read(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with serving(tmp_path, stdout=writer) as serve:
            assert ask(serve.url, "PING") == b"PONG"
            assert serve.end(signal.SIGTERM) == 0
            assert "Broken" not in serve.stderr
    finally:
        os.close(writer)


def test_serve_goes_on_without_standard_files(tmp_path: Path) -> None:
    flags = f"--data-dir {tmp_path}/d --ready-file {tmp_path}/ready --config /dev/null"
    flags += " " + " ".join(FREE_PORTS)
    shell = ["sh", "-c", f"exec {COMMAND} serve {flags} <&- >&- 2>&-"]
    with subprocess.Popen(shell, env=clean_environment(), cwd=tmp_path) as serve:
        eventually((tmp_path / "ready").exists, within_s=20)
        serve.terminate()
        assert serve.wait(120) == 0


def test_log_can_be_json(tmp_path: Path) -> None:
    with serving(tmp_path, "--log-format", "json") as serve:
        assert serve.url
        serve.end(signal.SIGTERM)
        assert json.loads(serve.stderr)["logger"] == "tambomq.serve.process"
