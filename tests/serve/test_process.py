from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tambomq.errors import EmbeddedError
from tambomq.serve.door import Endpoint
from tambomq.serve.process import Process


class Recorded:
    """A door that writes down what happens to it."""

    def __init__(self, name: str, diary: list[str], *, fails: str = "") -> None:
        self.name, self._diary, self._fails = name, diary, fails

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return (Endpoint(self.name, f"{self.name}://", "recorded"),)

    async def start(self) -> None:
        await self._do("start")

    async def watch(self) -> None:
        await self._do("watch")
        await asyncio.Event().wait()

    async def stop(self) -> None:
        await self._do("stop")

    async def _do(self, what: str) -> None:
        await asyncio.sleep(0)
        self._diary.append(f"{what} {self.name}")
        if self._fails == what:
            raise EmbeddedError(f"{self.name} cannot {what}")


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
