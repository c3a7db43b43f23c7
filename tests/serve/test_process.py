from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tambomq.errors import EmbeddedError
from tambomq.runtime.systemd import SystemdNotifier
from tambomq.serve.component import ServedEndpoint
from tambomq.serve.health import ProcessHealth
from tambomq.serve.process import Process, components
from tambomq.settings.load import (
    AlarmsSettings,
    ChasquiSettings,
    GomqSettings,
    HttpSettings,
    KqueueSettings,
    RsmqSettings,
    Settings,
)
from tests.serve.components import Recorded


def interrupt(_endpoints: Sequence[ServedEndpoint]) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def run(*components: Recorded, ready_path: Path | None = None) -> None:
    asyncio.run(Process(components, on_ready=interrupt, ready_path=ready_path).run())


def test_components_close_in_reverse_order() -> None:
    diary: list[str] = []
    run(Recorded("a", diary), Recorded("b", diary))
    assert [line for line in diary if "watch" not in line] == [
        "start a",
        "start b",
        "stop b",
        "stop a",
    ]


def test_component_that_does_not_open_closes_those_before_it() -> None:
    diary: list[str] = []
    with pytest.raises(EmbeddedError, match="b cannot start"):
        run(Recorded("a", diary), Recorded("b", diary, fails="start"), Recorded("c", diary))
    assert diary == ["start a", "start b", "stop b", "stop a"]


def test_component_that_breaks_closes_all() -> None:
    diary: list[str] = []
    components = [Recorded("a", diary), Recorded("b", diary, fails="watch")]
    with pytest.raises(EmbeddedError, match="b cannot watch"):
        asyncio.run(Process(components, on_ready=lambda _: None).run())
    assert diary[-2:] == ["stop b", "stop a"]


def test_a_component_that_does_not_close_is_logged_and_the_others_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary: list[str] = []
    run(Recorded("a", diary), Recorded("b", diary, fails="stop"))
    assert diary[-1] == "stop a"
    assert "b did not stop" in caplog.text


def test_ready_file_is_there_only_while_all_components_are_open(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("left by one that was killed")
    seen: list[object] = []

    class Watched(Recorded):
        async def start(self) -> None:
            seen.append(path.exists())

        async def watch(self) -> None:
            seen.append(json.loads(path.read_text()))
            await super().watch()

        async def stop(self) -> None:
            seen.append(path.exists())

    run(Watched("a", []), ready_path=path)
    endpoints = {"a": {"address": "a://", "about": "recorded", "try": ""}}
    assert [seen[0], seen[2]] == [False, False]
    assert isinstance(seen[1], dict)
    assert seen[1]["pid"] == os.getpid()
    assert seen[1]["endpoints"] == endpoints


def test_all_components_are_opened_in_the_order_they_need_each_other() -> None:
    names = [component.name for component in components(Settings(), ProcessHealth())]
    order = ["rsmq", "chasqui", "journal", "queue", "alarm", "gomq", "kqueue", "console"]
    assert names == ["http", "redis", *order]


def test_a_component_that_is_not_wanted_is_not_made() -> None:
    settings = Settings(
        rsmq=RsmqSettings(enabled=False),
        chasqui=ChasquiSettings(enabled=False),
        gomq=GomqSettings(enabled=False),
        kqueue=KqueueSettings(enabled=False),
        alarms=AlarmsSettings(enabled=False),
        http=HttpSettings(enabled=False),
    )
    assert [component.name for component in components(settings, ProcessHealth())] == ["redis"]


def test_endpoints_are_reported_in_the_order_of_opening_and_http_last() -> None:
    names: list[str] = []

    def on_ready(endpoints: Sequence[ServedEndpoint]) -> None:
        names.extend(each.name for each in endpoints)
        interrupt(endpoints)

    served = [Recorded("http"), Recorded("redis"), Recorded("gomq")]
    asyncio.run(Process(served, on_ready=on_ready).run())
    assert names == ["redis", "gomq", "http"]


def test_it_is_ready_while_all_components_are_open_and_no_signal_came() -> None:
    health, seen = ProcessHealth(), list[tuple[str, bool]]()

    class Asking(Recorded):
        async def start(self) -> None:
            seen.append((f"start {self.name}", health.ready))

        async def stop(self) -> None:
            seen.append((f"stop {self.name}", health.ready))

    def on_ready(endpoints: Sequence[ServedEndpoint]) -> None:
        seen.append(("ready", health.ready))
        interrupt(endpoints)

    asyncio.run(Process([Asking("a"), Asking("b")], on_ready=on_ready, health=health).run())
    assert seen == [
        ("start a", False),
        ("start b", False),
        ("ready", True),
        ("stop b", False),
        ("stop a", False),
    ]


def test_systemd_hears_when_it_is_ready_lives_and_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "s"))
        systemd.settimeout(60)
        environ = {"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "60000000"}
        notifier, ready = SystemdNotifier(environ), list[bytes]()

        def on_ready(_: object) -> None:
            ready.append(systemd.recv(100))
            interrupt(())

        asyncio.run(Process([Recorded("a")], on_ready=on_ready, notifier=notifier).run())
        assert ready == [b"WATCHDOG=1"]
        assert [systemd.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]


def test_it_is_not_ready_when_a_component_breaks() -> None:
    health = ProcessHealth()
    broken = Recorded("a", fails="watch")
    with pytest.raises(EmbeddedError):
        asyncio.run(Process([broken], on_ready=lambda _: None, health=health).run())
    assert not health.ready


def test_the_limit_of_open_files_is_raised_to_the_hard_limit() -> None:
    code = (
        "import resource as r; _, hard = r.getrlimit(r.RLIMIT_NOFILE); most = min(hard, 4000);"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, most));"
        "from tambomq.serve import process; process._raise_file_limit();"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (most, most)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
