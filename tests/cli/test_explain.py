"""``tambo explain`` as users run it: 80 columns, exit codes, and nothing that steers a terminal."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui.job import Envelope
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import encode_envelope
from tambomq.cli.explain import WIDTH
from tambomq.cli.main import tambo
from tambomq.cli.output import run
from tambomq.rsmq import Rsmq
from tests.servers import Server

HOSTILE = "<b>\x1b[31m\u202e\r\n\u05d0' $HOME"


def explain(server: Server, *args: str) -> int:
    return run(tambo, "tambo", ["explain", "--redis-url", server.url, *args])


def test_a_message_is_explained_in_80_columns(
    rsmq: Rsmq, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    rsmq.create_queue("orders")
    id = rsmq.send_message("orders", json.dumps({"note": "long " * 200}), delay=60)
    assert explain(server, "rsmq:orders", id) == 0
    out = capsys.readouterr().out
    assert f"rsmq:orders {id}\n" in out
    assert "It was sent with a delay and becomes visible in 1 m." in out
    assert "holds it now" in out
    assert "Becomes visible\n" in out
    assert f"redis-cli -p {server.port} ZSCORE rsmq:orders {id}" in out
    assert f"tambo explain --redis-url {server.url}" in out
    lines = [line for line in out.splitlines() if not line.startswith(("redis-cli", "tambo"))]
    assert max(map(len, lines)) <= WIDTH


def test_control_characters_of_names_and_bodies_are_spelled_out(
    db: redis.Redis, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = encode_envelope(Envelope(HOSTILE, msgspec.msgpack.encode({"x": HOSTILE}), 1))
    fields: dict[Any, Any] = {"d": stored, "n": HOSTILE.encode(), "reason": HOSTILE.encode()}
    db.xadd(Keys(HOSTILE).dlq, fields)
    assert explain(server, f"chasqui:{HOSTILE}", HOSTILE) == 0
    out = capsys.readouterr().out
    assert all(line.isprintable() for line in out.splitlines())
    assert "\\x1b[31m\\u202e" in out


def test_json_has_everything(
    rsmq: Rsmq, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    rsmq.create_queue("orders")
    id = rsmq.send_message("orders", "hello")
    assert explain(server, "rsmq:orders", id, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["row"]["id"], found["body"]["text"]) == (id, "hello")
    assert found["why"]["headline"] == "It is visible and the next to be received."


def test_another_namespace_is_read(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with Rsmq(server.url, ns="shop") as client:
        client.create_queue("orders")
        id = client.send_message("orders", "hello")
    assert explain(server, "rsmq:orders", id) == 3
    assert explain(server, "rsmq:orders", id, "--ns", "shop") == 0
    assert "shop:orders" in capsys.readouterr().out


def test_an_unknown_message_exits_3(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(server, "chasqui:payments", "nothing") == 3
    assert "queue 'payments' has no message 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize("queue", ["payments", "kafka:payments", "chasqui:"])
def test_a_queue_without_a_known_protocol_is_wrong_usage(
    server: Server, queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(server, queue, "id") == 2
    assert "rsmq, chasqui, gomq, kqueue, then a colon" in capsys.readouterr().err


def test_a_server_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    url = "redis://127.0.0.1:1"
    assert run(tambo, "tambo", ["explain", "--redis-url", url, "rsmq:orders", "0" * 32]) == 1
    assert "cannot reach" in capsys.readouterr().err
