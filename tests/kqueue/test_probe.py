"""Health probes: a server that answers, is stopped, or hangs."""

from __future__ import annotations

import socket

import pytest

from tambomq.errors import BrokerUnavailable
from tambomq.kqueue import KqueueServer
from tests.kqueue.serving import Served


def test_a_probe_is_answered_and_counted(served: Served) -> None:
    with served.connect(b"healthz") as client:
        assert client.rest() == b"OK"
    served.run(served.server.check())
    served.comes_to(lambda stats: (stats.probes, stats.connections) == (2, 0))
    assert served.stats.protocol_errors == 0


def test_a_server_that_does_not_run_fails_its_check(served: Served) -> None:
    served.run(served.server.stop())
    with pytest.raises(BrokerUnavailable, match="not running"):
        served.run(served.server.check())


async def test_a_server_bound_to_all_addresses_probes_itself_by_loopback() -> None:
    async with KqueueServer("0.0.0.0", port=0) as server:
        await server.check()


async def test_a_check_of_a_server_that_does_not_answer_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tambomq.kqueue.probe.PROBE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        async with KqueueServer(port=0) as server:
            server._bound = deaf.getsockname()
            with pytest.raises(BrokerUnavailable, match=r"no answer within 0\.1 s"):
                await server.check()
