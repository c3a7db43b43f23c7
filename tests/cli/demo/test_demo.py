"""``tambo demo``, through the doors of a real ``tambo serve``."""

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

from tambomq.cli import demo_brokers, demo_redis, demo_run
from tambomq.cli.demo_stage import Outcome, Plan, Stage, together
from tambomq.cli.main import tambo
from tambomq.errors import BrokerRefused, QueueError
from tests.cli.running import WITHIN_S, Start, on_a_terminal, starting
from tests.cli.transcript import Done, call
from tests.serve.processes import Serving, serving
from tests.servers import Server, eventually

_NOBODY = "redis://127.0.0.1:1"
_CLOSED = ("--gomq-address", "127.0.0.1:1", "--kqueue-address", "127.0.0.1:1")
DOORS = ["rsmq", "chasqui", "gomq", "kqueue"]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A ``tambo serve`` with all doors."""
    with serving(tmp_path_factory.mktemp("serve")) as serve:
        assert serve.ready
        yield serve


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


def demo(*args: str, url: str = _NOBODY) -> Done:
    return call(tambo, "tambo", "demo", *args, url=url)


def is_empty(url: str) -> bool:
    """Whether Redis holds nothing; leaders give up their locks on a queue a moment later."""
    with redis.Redis.from_url(url) as db:
        found = db.keys("*")
    assert found == [], found
    return True


def test_all_is_as_expected_and_nothing_is_left(serve: Serving) -> None:
    told = demo("--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "50", "--json")
    assert told.code == 0, told
    found = json.loads(told.out)
    assert (found["ok"], found["left_out"], list(found["doors"])) == (True, {}, DOORS)
    assert {door: (told["sent"], told["received"]) for door, told in found["doors"].items()} == {
        "rsmq": (50, 51),
        "chasqui": (61, 60),
        "gomq": (50, 100),
        "kqueue": (100, 150),
    }
    assert (
        found["doors"]["chasqui"] | {"delayed": 5, "retried": 5, "dead": 1}
        == (found["doors"]["chasqui"])
    )
    assert found["doors"]["rsmq"]["came_again"] == 1
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


def test_people_get_lines_and_a_table(serve: Serving) -> None:
    places = ["--redis-url", serve.url, "--gomq-address", serve.address("gomq")]
    places += ["--kqueue-address", serve.address("kqueue")]
    told = demo(*places, "--seconds", "0.2", "--count", "1")
    assert told.code == 0, told
    head, *rows, last = told.out.splitlines()
    assert head.split() == ["door", "sent", "received", "of", "them", "time", "verdict"]
    assert [row.split()[0] for row in rows] == DOORS
    assert all(row.rstrip().endswith("all as expected") for row in rows)
    assert last == "everything that was made in Redis is deleted"
    assert "rsmq: message 0 is not deleted: hidden for 1 s\n" in told.err


def test_queues_and_journals_are_kept_if_that_is_wanted(serve: Serving) -> None:
    words = ("--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "10", "--keep")
    told = demo(*words)
    assert told.code == 0, told
    kept = re.search(r"the queues (tambo-demo-\w+) of", told.out)
    assert kept is not None
    with redis.Redis.from_url(serve.url) as db:
        events: Any = db.xrange(f"{{tambo:rsmq:{kept[1]}}}:journal")
        assert sum(fields[b"e"] == b"sent" for _, fields in events) == 10
        assert db.xlen(f"{{tambo:chasqui:{kept[1]}}}:journal") == 13
        assert db.xlen(f"{{chasqui:{kept[1]}}}:dlq") == 1
        db.delete(*cast("list[bytes]", db.keys("*")))


def test_terminal_sees_a_bar_for_each_door(serve: Serving) -> None:
    words = ("demo", "--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "10")
    code, drawn = on_a_terminal(*words, stdin=Path("/dev/null"))
    assert code == 0
    for bar in ("11/11", "12/12", "20/20", "30/30"):
        assert bar in drawn


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_leave_nothing_behind(serve: Serving, start: Start, number: int) -> None:
    running = start("demo", "--ready-file", str(serve.ready_file), "--seconds", "60")
    for door in DOORS:
        running.says(f"{door}: \\d+ ", "err")
    running.process.send_signal(number)
    # Some who stop a program do it twice.
    assert running.stop(number) == 130
    assert "stopped; what was made is deleted\n" in running.err
    assert running.out == ""
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


# ── doors that are not open ──────────────────────────────────────────────────


def test_closed_doors_are_named_with_advice(server: Server) -> None:
    told = demo(*_CLOSED, url=server.url)
    assert told == Done(
        1,
        "",
        "tambo: not open: gomq (127.0.0.1:1: Connection refused), "
        "kqueue (127.0.0.1:1: Connection refused): start them with `make run` or `tambo serve`, "
        "or leave them out with --skip-missing\n",
    )


def test_closed_doors_are_left_out_if_that_is_wanted(server: Server) -> None:
    told = demo(*_CLOSED, "--skip-missing", "--seconds", "0", "--count", "5", url=server.url)
    assert told.code == 0, told
    rows = [line.split() for line in told.out.splitlines()[1:-1]]
    assert [row[0] for row in rows] == DOORS
    assert " ".join(rows[2]) == "gomq - - - - left out: 127.0.0.1:1: Connection refused"
    eventually(lambda: is_empty(server.url), within_s=WITHIN_S)


def test_without_any_door_nothing_can_be_shown() -> None:
    told = demo(*_CLOSED, "--skip-missing")
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
    assert "`make run`" in told.err


def test_door_that_serve_was_told_to_leave_out_is_missing(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text(json.dumps({"endpoints": {"redis": {"address": server.url}}}))
    told = demo("--ready-file", str(path))
    assert told.code == 1
    assert "rsmq (it is not in the ready file)" in told.err


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"endpoints": {"gomq": {"address": "nowhere"}}}', '{"endpoints": 1}']
)
def test_wrong_ready_file_is_a_usage_error(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ready.json"
    if text is not None:
        path.write_text(text)
    told = demo("--ready-file", str(path))
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert told.err.startswith("tambo: --ready-file: ")


# ── what is not as expected ──────────────────────────────────────────────────


def test_what_is_wrong_is_told_and_what_was_made_is_deleted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def thief(client: Any, plan: Plan, outcome: Outcome) -> None:
        raise QueueError(plan.name, "somebody took a message")

    monkeypatch.setattr(demo_redis, "_receive", thief)
    told = demo(*_CLOSED, "--skip-missing", "--seconds", "0", "--count", "5", url=server.url)
    assert told.code == 1
    assert "somebody took a message" in told.out
    assert "is deleted" not in told.out
    eventually(lambda: is_empty(server.url), within_s=WITHIN_S)


def test_gomq_that_fails_halfway_leaves_nothing(
    serve: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def observe(*_: object) -> None:
        raise BrokerRefused("Observe", "INTERNAL", "broken")

    monkeypatch.setattr(demo_brokers, "_observe", observe)
    told = demo("--ready-file", str(serve.ready_file), "--seconds", "0", "--count", "50", "--json")
    assert told.code == 1
    found = json.loads(told.out)
    assert found["ok"] is False
    assert found["doors"]["gomq"]["wrong"] == ["Observe: INTERNAL: broken"]
    assert found["doors"]["kqueue"]["wrong"] == []
    eventually(lambda: is_empty(serve.url), within_s=WITHIN_S)


async def test_traffic_that_does_not_come_is_given_up() -> None:
    outcome = Outcome("gomq", Stage())
    outcome.expect(3)
    outcome.got(2)
    await outcome.of(asyncio.Event().wait(), 0.01)  # type: ignore[arg-type]
    assert outcome.wrong == ["2 of 3 were received in 0.01 s"]


async def test_those_who_work_together_clean_up_before_the_error_is_told() -> None:
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


async def test_closed_redis_is_told_without_its_password() -> None:
    plan = Plan("a", 1, 0, "redis://:s3cret@127.0.0.1:1", "127.0.0.1:1", ("127.0.0.1", 1))
    found = await demo_run.missing(plan)
    assert list(found) == DOORS
    assert "s3cret" not in repr(found) + repr(plan)
