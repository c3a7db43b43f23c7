from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys

import pytest

from tambomq.errors import BrokerUnavailable, ComponentFailed
from tambomq.gomq.envoy.child import ChildConfig
from tambomq.gomq.envoy.config import command
from tambomq.gomq.envoy.process import EnvoyProcess
from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.gomq.model import Options
from tests.gomq.envoy.envoy_owner import needs_envoy, owning, pid_and_port
from tests.serve.processes import alive, parent_of
from tests.servers import Server, binaries, eventually


@needs_envoy
async def test_password_is_not_seen_in_the_list_of_processes() -> None:
    with Server(binaries.valkey(), password="geheim") as server:
        async with EnvoyGomqServer(server.url, port=0, token="token-of-ours") as envoy:
            for pid in (envoy.pid, parent_of(envoy.pid)):
                words = _command_of(pid)
                assert "-" in words
                assert "geheim" not in words
                assert "token-of-ours" not in words


@needs_envoy
async def test_envoy_that_dies_is_reported(server: Server) -> None:
    envoy = EnvoyGomqServer(server.url, port=0)
    await envoy.start()
    try:
        os.kill(envoy.pid, signal.SIGKILL)
        with pytest.raises(ComponentFailed, match="ended with code 137"):
            await envoy.watch()
        with pytest.raises(BrokerUnavailable):
            await envoy.check()
    finally:
        await envoy.stop()


@needs_envoy
def test_envoy_does_not_outlive_an_owner_that_is_killed(server: Server) -> None:
    with owning(server) as owner:
        pid, _ = pid_and_port(owner)
        keeper = parent_of(pid)
        owner.kill()
        owner.wait()
        eventually(lambda: not alive(pid) and not alive(keeper), within_s=20)


@needs_envoy
def test_envoy_does_not_outlive_its_keeper(server: Server) -> None:
    with owning(server) as owner:
        pid, _ = pid_and_port(owner)
        os.kill(parent_of(pid), signal.SIGKILL)
        eventually(lambda: not alive(pid), within_s=20)
        assert owner.wait(60) != 0


@needs_envoy
async def test_log_records_of_the_child_are_logged_by_the_parent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    says = """
import logging, sys
from tambomq import log
log.set_up("debug", "json")
logging.getLogger("tambomq.gomq.server.reaper").warning("%d peers", 3)
try:
    raise KeyError("oops")
except KeyError:
    logging.getLogger("tambomq.gomq.envoy.app").exception("failed")
print("cannot bind", file=sys.stderr)
sys.exit(3)
"""
    config = ChildConfig("redis://", Options(), None, -1, "DEBUG")
    envoy = await EnvoyProcess.start([sys.executable, "-c", says], config)
    assert await envoy.wait() == 3
    await envoy.end()
    logged = {record.name: record for record in caplog.records}
    assert logged["tambomq.gomq.server.reaper"].getMessage() == "3 peers"
    assert logged["tambomq.gomq.envoy.app"].levelno == logging.ERROR
    assert "KeyError: 'oops'" in logged["tambomq.gomq.envoy.app"].getMessage()
    assert logged["tambomq.gomq.envoy.process"].getMessage() == "Envoy: cannot bind"
    assert envoy.last_error == "cannot bind"


@needs_envoy
def test_nothing_but_its_own_port_is_opened() -> None:
    words = command("127.0.0.1", 1, None)
    assert "admin" not in words[words.index("--config-yaml") + 1]


def _command_of(pid: int) -> str:
    shown = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout
