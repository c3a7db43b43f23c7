"""``tambo demo``, through the protocols of a real ``tambo serve``."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from tambomq.cli.demo import brokers as demo_brokers
from tambomq.cli.demo import redis as demo_redis
from tambomq.cli.demo import run as demo_run
from tambomq.cli.demo.display import DemoDisplay, DemoPlan, DemoResult, together
from tambomq.cli.main import tambo
from tambomq.errors import BrokerRefused, QueueError
from tests.cli.running import WITHIN_S, Start, on_a_terminal, starting
from tests.cli.transcript import Done, call
from tests.serve.processes import Serving, serving
from tests.servers import Server, eventually

_UNREACHABLE = "redis://127.0.0.1:1"
_CLOSED = ("--gomq-address", "127.0.0.1:1", "--kqueue-address", "127.0.0.1:1")
PROTOCOLS = ["rsmq", "chasqui", "gomq", "kqueue"]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A ``tambo serve`` with all protocols."""
    with serving(tmp_path_factory.mktemp("serve")) as serve:
        assert serve.ready
        yield serve


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def demo(*args: str, url: str = _UNREACHABLE) -> Done:
    return call(tambo, "tambo", "demo", *args, url=url)


def is_empty(url: str) -> bool:
    """Whether Redis holds nothing; leaders give up their locks on a queue a moment later."""
    with redis.Redis.from_url(url) as db:
        found = db.keys("*")
    assert found == [], found
    return True


def test_every_protocol_delivers_as_expected_and_nothing_is_left(serve: Serving) -> None:
    result = demo(
        "--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "50", "--json"
    )
    assert result.code == 0, result
    found = json.loads(result.out)
    assert (found["ok"], found["left_out"], list(found["protocols"])) == (True, {}, PROTOCOLS)
    assert {
        protocol: (counts["sent"], counts["received"])
        for protocol, counts in found["protocols"].items()
    } == {
        "rsmq": (50, 51),
        "chasqui": (61, 60),
        "gomq": (50, 100),
        "kqueue": (100, 150),
    }
    assert (
        found["protocols"]["chasqui"] | {"delayed": 5, "retried": 5, "dead": 1}
        == (found["protocols"]["chasqui"])
    )
    assert found["protocols"]["rsmq"]["came_again"] == 1
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


def test_people_get_lines_and_a_table(serve: Serving) -> None:
    places = ["--redis-url", serve.url, "--gomq-address", serve.address("gomq")]
    places += ["--kqueue-address", serve.address("kqueue")]
    result = demo(*places, "--seconds", "0.2", "--count", "1")
    assert result.code == 0, result
    head, *rows, last = result.out.splitlines()
    assert head.split() == ["protocol", "sent", "received", "of", "them", "time", "verdict"]
    assert [row.split()[0] for row in rows] == PROTOCOLS
    assert all(row.rstrip().endswith("all as expected") for row in rows)
    assert last == "everything that was made in Redis is deleted"
    assert "rsmq: message 0 is not deleted: hidden for 1 s\n" in result.err
    assert result.err.splitlines()[-1].endswith("tambo demo --live")


def test_queues_and_journals_are_kept_if_that_is_wanted(serve: Serving) -> None:
    words = ("--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "10", "--keep")
    result = demo(*words)
    assert result.code == 0, result
    kept = re.search(r"the queues (tambo-demo-\w+) of", result.out)
    assert kept is not None
    with redis.Redis.from_url(serve.url) as db:
        events: Any = db.xrange(f"{{tambo:rsmq:{kept[1]}}}:journal")
        assert sum(fields[b"e"] == b"sent" for _, fields in events) == 10
        assert db.xlen(f"{{tambo:chasqui:{kept[1]}}}:journal") == 13
        assert db.xlen(f"{{chasqui:{kept[1]}}}:dlq") == 1
        db.delete(*cast("list[bytes]", db.keys("*")))


def test_terminal_sees_a_bar_for_each_protocol(serve: Serving) -> None:
    words = ("demo", "--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "10")
    code, drawn = on_a_terminal(*words, stdin=Path("/dev/null"))
    assert code == 0
    for bar in ("11/11", "12/12", "20/20", "30/30"):
        assert bar in drawn


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_nothing_behind(serve: Serving, start: Start, number: int) -> None:
    running = start("demo", "--ready-file", str(serve.ready_file), "--seconds", "60")
    for protocol in PROTOCOLS:
        running.says(f"{protocol}: \\d+ ", "err")
    running.process.send_signal(number)
    # Some process managers send the signal twice.
    assert running.stop(number) == 130
    assert "stopped; what was made is deleted\n" in running.err
    assert running.out == ""
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


# ── protocols that are not open ──────────────────────────────────────────────────


def test_closed_protocols_are_named_with_advice(server: Server) -> None:
    result = demo(*_CLOSED, url=server.url)
    assert result == Done(
        1,
        "",
        "tambo: not open: gomq (127.0.0.1:1: Connection refused), "
        "kqueue (127.0.0.1:1: Connection refused): start them with `make run` or `tambo serve`, "
        "or leave them out with --skip-missing\n",
    )


def test_closed_protocols_are_left_out_if_that_is_wanted(server: Server) -> None:
    result = demo(*_CLOSED, "--skip-missing", "--seconds", "0", "--count", "5", url=server.url)
    assert result.code == 0, result
    rows = [line.split() for line in result.out.splitlines()[1:-1]]
    assert [row[0] for row in rows] == PROTOCOLS
    assert " ".join(rows[2]) == "gomq - - - - left out: 127.0.0.1:1: Connection refused"
    eventually(lambda: is_empty(server.url), within_s=WITHIN_S)


def test_without_any_protocol_nothing_can_be_shown() -> None:
    result = demo(*_CLOSED, "--skip-missing")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert "`make run`" in result.err


def test_a_protocol_that_serve_leaves_out_is_missing(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text(json.dumps({"endpoints": {"redis": {"address": server.url}}}))
    result = demo("--ready-file", str(path))
    assert result.code == 1
    assert "rsmq (it is not in the ready file)" in result.err


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"endpoints": {"gomq": {"address": "nowhere"}}}', '{"endpoints": 1}']
)
def test_wrong_ready_file_is_a_usage_error(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ready.json"
    if text is not None:
        path.write_text(text)
    result = demo("--ready-file", str(path))
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("tambo: --ready-file: ")


# ── what is not as expected ──────────────────────────────────────────────────


def test_errors_are_reported_and_created_queues_are_deleted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def thief(client: Any, plan: DemoPlan, outcome: DemoResult) -> None:
        raise QueueError(plan.name, "somebody took a message")

    monkeypatch.setattr(demo_redis, "_receive", thief)
    result = demo(*_CLOSED, "--skip-missing", "--seconds", "0", "--count", "5", url=server.url)
    assert result.code == 1
    assert "somebody took a message" in result.out
    assert "is deleted" not in result.out
    eventually(lambda: is_empty(server.url), within_s=WITHIN_S)


def test_gomq_that_fails_halfway_leaves_nothing(
    serve: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def observe(*_: object) -> None:
        raise BrokerRefused("Observe", "INTERNAL", "broken")

    monkeypatch.setattr(demo_brokers, "_observe", observe)
    result = demo(
        "--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "50", "--json"
    )
    assert result.code == 1
    found = json.loads(result.out)
    assert found["ok"] is False
    assert found["protocols"]["gomq"]["wrong"] == ["Observe: INTERNAL: broken"]
    assert found["protocols"]["kqueue"]["wrong"] == []
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


async def test_traffic_that_does_not_come_is_given_up() -> None:
    outcome = DemoResult("gomq", DemoDisplay())
    outcome.expect(3)
    outcome.got(2)
    await outcome.of(asyncio.Event().wait(), 0.01)  # type: ignore[arg-type]
    assert outcome.wrong == ["2 of 3 were received in 0.01 s"]


async def test_concurrent_tasks_clean_up_before_the_error_is_raised() -> None:
    cleaned = []

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("other")

    async def failing() -> None:
        await asyncio.sleep(0)
        raise QueueError("a", "failed")

    with pytest.raises(QueueError, match="failed"):
        await together(other(), failing())
    both = asyncio.ensure_future(together(other(), other()))
    await asyncio.sleep(0.01)
    both.cancel()
    with pytest.raises(asyncio.CancelledError):
        await both
    assert cleaned == ["other"] * 3


async def test_an_unreachable_redis_is_reported_without_its_password() -> None:
    plan = DemoPlan("a", 1, 0, "redis://:s3cret@127.0.0.1:1", "127.0.0.1:1", ("127.0.0.1", 1))
    found = await demo_run.missing(plan)
    assert list(found) == PROTOCOLS
    assert "s3cret" not in repr(found) + repr(plan)
