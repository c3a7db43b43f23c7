"""`tambo serve` with little memory stops producers, and lets them go on once there is space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tambomq.errors import BrokerRefused
from tambomq.gomq import GomqClient
from tests.serve.processes import Serving, serving, tambo
from tests.servers import eventually

BODY = b"x" * 50_000
FLAGS = (
    *("--redis-maxmemory", "16MiB", "--alarms-memory-high-percent", "60"),
    *("--alarms-memory-low-percent", "40", "--alarms-every-s", "0.1"),
    *("--no-kqueue", "--no-chasqui", "--log-format", "json"),
)


def alarm(serve: Serving) -> tuple[int, bool, str]:
    """Status of /healthz, and whether the alarm component is degraded, and why."""
    code, text = serve.get("/healthz")
    found = json.loads(text)["alarm"]
    assert found["ok"]
    return code, found["degraded"], found["why"]


def refusal(client: GomqClient, body: bytes) -> str:
    """Publish; return why that was refused, or nothing."""
    try:
        client.publish("k", body)
    except BrokerRefused as refused:
        return str(refused)
    return ""


@pytest.mark.slow
def test_producers_are_stopped_and_go_on_once_consumers_have_made_space(tmp_path: Path) -> None:
    with serving(tmp_path, *FLAGS) as serve, GomqClient(serve.address("gomq")) as client:
        client.subscribe("k", "c")
        assert alarm(serve) == (200, False, "")
        # Before servers have read the alarm, the memory limit itself may refuse.
        text = eventually(
            lambda: "memory has" in (why := refusal(client, BODY)) and why, within_s=30
        )
        assert "RESOURCE_EXHAUSTED" in str(text)
        why = eventually(lambda: alarm(serve)[2], within_s=20)
        assert "add consumers" in why
        assert serve.get("/readyz")[0] == 200
        assert 'tambo_alarm_raised{kind="memory"} 1.0' in serve.get("/metrics")[1]
        doctor = tambo("doctor", "--redis-url", serve.url, cwd=tmp_path)
        assert "producers are stopped" in " ".join(doctor.stdout.split())
        eventually(lambda: not client.observe("c"), within_s=30)
        eventually(lambda: not alarm(serve)[1], within_s=20)
        eventually(lambda: not refusal(client, b"after"), within_s=20)
        lines = [json.loads(line) for line in serve.stderr.splitlines() if '"alarm"' in line]
        assert [line["message"].startswith("alarm:") for line in lines] == [True, False]
