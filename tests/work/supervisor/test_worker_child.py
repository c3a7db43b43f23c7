"""A worker process as its supervisor hears of it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tambomq.work.messages import (
    ExitMessage,
    LoadedMessage,
    ProcessMessage,
    encode_message,
)
from tambomq.work.supervisor.worker_child import WorkerChild

LOADED = LoadedMessage([])
EXIT = ExitMessage("failed", "the worker of 'mail' failed: RuntimeError: no database")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", ""]) as started:
        yield started


async def test_the_last_message_of_a_process_that_has_ended_is_read(
    process: subprocess.Popen[bytes],
) -> None:
    """It says why. The process may have sent it while the banner was being printed."""
    ours, theirs = socket.socketpair()
    heard: list[ProcessMessage] = []

    def on_message(child: WorkerChild, message: ProcessMessage) -> None:
        heard.append(message)
        if message == LOADED:
            theirs.sendall(encode_message(EXIT))
            theirs.close()
            child.send_go()

    child = WorkerChild(1, process, asyncio.get_running_loop().create_future(), ours)
    theirs.sendall(encode_message(LOADED))
    await child._read(on_message)
    assert heard == [LOADED, EXIT]
    assert child.leaving == EXIT
    child.send_go()
