from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tambomq.errors import EmbeddedError
from tambomq.serve.door import Endpoint
from tambomq.serve.health import Health
from tambomq.serve.process import Process, doors
from tambomq.settings import (
    ChasquiSettings,
    GomqSettings,
    HttpSettings,
    KqueueSettings,
    RsmqSettings,
    Settings,
)
from tests.serve.doors import Recorded


def interrupt(_endpoints: Sequence[Endpoint]) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def run(*doors: Recorded, ready_path: Path | None = None) -> None:
    asyncio.run(Process(doors, on_ready=interrupt, ready_path=ready_path).run())


def test_doors_close_in_reverse_order() -> None:
    diary: list[str] = []
    run(Recorded("a", diary), Recorded("b", diary))
    assert [line for line in diary if "watch" not in line] == [
        "start a",
        "start b",
        "stop b",
        "stop a",
    ]


def test_door_that_does_not_open_closes_those_before_it() -> None:
    diary: list[str] = []
    with pytest.raises(EmbeddedError, match="b cannot start"):
        run(Recorded("a", diary), Recorded("b", diary, fails="start"), Recorded("c", diary))
    assert diary == ["start a", "start b", "stop b", "stop a"]


def test_door_that_breaks_closes_all() -> None:
    diary: list[str] = []
    doors = [Recorded("a", diary), Recorded("b", diary, fails="watch")]
    with pytest.raises(EmbeddedError, match="b cannot watch"):
        asyncio.run(Process(doors, on_ready=lambda _: None).run())
    assert diary[-2:] == ["stop b", "stop a"]


def test_door_that_does_not_close_is_told_and_the_others_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diary: list[str] = []
    run(Recorded("a", diary), Recorded("b", diary, fails="stop"))
    assert diary[-1] == "stop a"
    assert "b did not close" in caplog.text


def test_ready_file_is_there_only_while_all_doors_are_open(tmp_path: Path) -> None:
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


def test_all_doors_are_opened_in_the_order_they_need_each_other() -> None:
    names = [door.name for door in doors(Settings(), Health())]
    assert names == ["http", "redis", "rsmq", "chasqui", "journal", "gomq", "kqueue"]


def test_a_door_that_is_not_wanted_is_not_made() -> None:
    settings = Settings(
        rsmq=RsmqSettings(enabled=False),
        chasqui=ChasquiSettings(enabled=False),
        gomq=GomqSettings(enabled=False),
        kqueue=KqueueSettings(enabled=False),
        http=HttpSettings(enabled=False),
    )
    assert [door.name for door in doors(settings, Health())] == ["redis"]


def test_endpoints_are_told_in_the_order_of_opening_and_http_last() -> None:
    told: list[str] = []

    def on_ready(endpoints: Sequence[Endpoint]) -> None:
        told.extend(each.name for each in endpoints)
        interrupt(endpoints)

    served = [Recorded("http"), Recorded("redis"), Recorded("gomq")]
    asyncio.run(Process(served, on_ready=on_ready).run())
    assert told == ["redis", "gomq", "http"]


def test_it_is_ready_while_all_doors_are_open_and_no_signal_came() -> None:
    health, seen = Health(), list[tuple[str, bool]]()

    class Asking(Recorded):
        async def start(self) -> None:
            seen.append((f"start {self.name}", health.ready))

        async def stop(self) -> None:
            seen.append((f"stop {self.name}", health.ready))

    def on_ready(endpoints: Sequence[Endpoint]) -> None:
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


def test_it_is_not_ready_when_a_door_breaks() -> None:
    health = Health()
    broken = Recorded("a", fails="watch")
    with pytest.raises(EmbeddedError):
        asyncio.run(Process([broken], on_ready=lambda _: None, health=health).run())
    assert not health.ready


def test_as_many_files_as_allowed_may_be_open() -> None:
    code = (
        "import resource as r; _, hard = r.getrlimit(r.RLIMIT_NOFILE); most = min(hard, 4000);"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, most));"
        "from tambomq.serve import process; process._allow_many_files();"
        "assert r.getrlimit(r.RLIMIT_NOFILE) == (most, most)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
