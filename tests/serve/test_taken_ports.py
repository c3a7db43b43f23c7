"""Taken ports are reported all at once, before anything is opened."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import tambomq
from tambomq.errors import ComponentFailed
from tambomq.serve import taken_ports as taken
from tambomq.serve.taken_ports import refuse_taken
from tambomq.settings.load import (
    GomqSettings,
    HttpSettings,
    KqueueSettings,
    ServerSettings,
    Settings,
)
from tests.serve.processes import serving, tambo


@pytest.fixture
def busy() -> Iterator[list[int]]:
    """Four ports that something listens on."""
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        yield [each.getsockname()[1] for each in listening]


def asking(http: int, redis: int, gomq: int, kqueue: int) -> Settings:
    return Settings(
        server=ServerSettings(redis_port=redis),
        gomq=GomqSettings(port=gomq),
        kqueue=KqueueSettings(port=kqueue),
        http=HttpSettings(port=http),
    )


def test_all_taken_ports_are_reported_at_once_with_free_ones(
    busy: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken, "describe", lambda *_: None)
    with pytest.raises(ComponentFailed) as caught:
        refuse_taken(asking(*busy))
    text = str(caught.value)
    assert text.startswith("http, redis, gomq and kqueue cannot be served: ")
    assert all(f"127.0.0.1:{port}" in text for port in busy)
    flags = dict(re.findall(r"--(\w+)-port (\d+)", text))
    assert list(flags) == ["http", "redis", "gomq", "kqueue"]
    for port in map(int, flags.values()):
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("place", range(4))
def test_a_port_taken_by_another_program_is_reported_by_its_component(
    busy: list[int], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taken, "describe", lambda *_: None)
    monkeypatch.setattr(taken, "_ORPHANS_END_S", 0)
    wanted = [0, 0, 0, 0]
    wanted[place] = busy[place]
    refuse_taken(asking(*wanted))


def test_a_disabled_component_needs_no_port(busy: list[int]) -> None:
    refuse_taken(
        Settings(
            server=ServerSettings(redis_url="redis://elsewhere", redis_port=busy[1]),
            gomq=GomqSettings(enabled=False, port=busy[2]),
            kqueue=KqueueSettings(enabled=False, port=busy[3]),
            http=HttpSettings(enabled=False, port=busy[0]),
        )
    )


def test_the_error_of_a_second_serve_names_the_first(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        found = first.ready["endpoints"]
        components = ("http", "redis", "gomq", "kqueue")
        at = {name: found[name]["address"].rpartition(":")[2] for name in components}
        flags = [f"--{name}-port={port}" for name, port in at.items()]
        data = str(tmp_path / "data")
        refused = tambo("serve", "--data-dir", data, *flags, cwd=tmp_path)
        pid = first.process.pid
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr.startswith("tambo: http, redis, gomq and kqueue cannot be served: ")
    assert (
        f"are taken by another tambo serve (version {tambomq.__version__}, process {pid}): use"
        in refused.stderr
    )
    assert all(f"--{name}-port " in refused.stderr for name in at)
    assert refused.stderr.endswith("and another directory with --data-dir\n")


@pytest.mark.parametrize("body", [b"no JSON", b"[]", b'{"version": "1"}', b'{"endpoints": 1}'])
def test_a_foreign_http_server_is_not_taken_for_tambo(body: bytes) -> None:
    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (its name there)
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Foreign) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        assert taken.describe("127.0.0.1", server.server_address[1]) is None
        thread.join()


def test_a_silent_server_is_not_taken_for_tambo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "_REPLY_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert taken.describe("127.0.0.1", silent.getsockname()[1]) is None
    assert taken.describe("127.0.0.1", 0) is None
