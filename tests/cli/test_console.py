"""``tambo console``: the console beside any Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq.cli.console import announce, browser_url, console_components
from tambomq.errors import SettingsError
from tambomq.rsmq import Rsmq
from tambomq.serve.component import ServedEndpoint
from tambomq.serve.health import ProcessHealth
from tambomq.settings import load as settings
from tests.cli.running import Start, starting
from tests.serve.processes import get, tambo
from tests.servers import Server

HTTP = ServedEndpoint("http", "http://127.0.0.1:8090", "console")
REDIS = ServedEndpoint("redis", "redis://:s3cret@h:6379", "as given")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def test_it_serves_the_console_of_a_server_that_runs_already(
    server: Server, start: Start, tmp_path: Path
) -> None:
    ready = tmp_path / "ready.json"
    with Rsmq(server.url, ns="other") as rsmq:
        rsmq.create_queue("orders")
        rsmq.send_message("orders", "hello")
    flags = ("--redis-url", server.url, "--http-port", "0", "--rsmq-ns", "other")
    running = start("console", *flags, "--http-read-only", "--ready-file", str(ready))
    running.says(r"The console of redis://\S+ is at http://127\.0\.0\.1:\d+\n")
    url = running.out.split(" is at ")[1].split()[0]
    overview = json.loads(get(f"{url}/api/v1/overview")[1])
    assert [(row["queue"], row["depth"]) for row in overview["queues"]] == [("rsmq:orders", 1)]
    assert json.loads(get(f"{url}/api/v1/session")[1])["read_only"] is True
    assert set(json.loads(get(f"{url}/healthz")[1])) == {"http", "redis", "console"}
    assert running.stop() == 0
    assert not ready.exists()


def test_its_help_says_which_server_it_shows_without_a_url(tmp_path: Path) -> None:
    shown = " ".join(tambo("console", "--help", cwd=tmp_path).stdout.split())
    assert "The server, or the sentinels of its primary. [redis://127.0.0.1:6379]" in shown
    assert "embedded" not in shown


def test_a_server_that_does_not_answer_ends_it(tmp_path: Path) -> None:
    ran = tambo("console", "--redis-url", "redis://127.0.0.1:1", "--http-port=0", cwd=tmp_path)
    assert ran.returncode == 1
    assert "cannot reach redis://127.0.0.1:1" in ran.stderr


def test_beyond_loopback_it_needs_tls_and_a_token() -> None:
    loaded = settings.load(env={}, flags={"http_host": "0.0.0.0"})
    with pytest.raises(SettingsError, match=r"--http-host 0\.0\.0\.0 is beyond loopback"):
        console_components(loaded, ProcessHealth())


def test_beyond_loopback_it_needs_a_token_even_if_insecure() -> None:
    loaded = settings.load(env={}, flags={"http_host": "0.0.0.0", "insecure": True})
    with pytest.raises(SettingsError, match="--http-token"):
        console_components(loaded, ProcessHealth())


def test_other_components_of_the_file_do_not_matter() -> None:
    flags = {"gomq_host": "0.0.0.0", "kqueue_host": "0.0.0.0", "http_enabled": False}
    parts = console_components(settings.load(env={}, flags=flags), ProcessHealth())
    assert [part.name for part in parts] == ["http", "redis", "console"]


def test_passwords_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    announce([REDIS, HTTP], as_json=False)
    assert "s3cret" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://127.0.0.1:8090", "http://127.0.0.1:8090"),
        ("https://0.0.0.0:8090", "https://localhost:8090"),
        ("http://[::]:8090", "http://localhost:8090"),
    ],
)
def test_a_browser_is_sent_to_this_machine(address: str, url: str) -> None:
    assert browser_url([REDIS, ServedEndpoint("http", address, "console")]) == url
