"""``tambo work`` as people and programs use it."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import tambomq
from tambomq.chasqui import BlockingQueue
from tambomq.cli.main import tambo as command
from tambomq.cli.output import run
from tests.serve.processes import tambo
from tests.servers import Server, eventually
from tests.work.supervising import WITHIN_S, Shop
from tests.work.supervising import shop as open_shop

JOBS = """
from tambomq.jobs import Jobs

mail = Jobs("mail", redis_url=URL)

@mail.job(attempts=1)
async def welcome(to: str) -> str:
    return f"hello {to}"

@mail.job(attempts=1)
def refuse(to: str) -> None:
    raise ValueError("no such\\naddress")
"""


@pytest.fixture
def shop(tmp_path: Path, server: Server) -> Iterator[Shop]:
    with open_shop(tmp_path, server.url) as opened:
        yield opened


@pytest.fixture
def mail(server: Server) -> Iterator[BlockingQueue]:
    queue = BlockingQueue("mail", redis_url=server.url)
    yield queue
    queue.close()


def test_it_says_what_it_works_on_and_how_each_run_ended(
    shop: Shop, mail: BlockingQueue, server: Server
) -> None:
    shop.write(JOBS)
    mail.add("welcome", {"to": "ada"}, job_id="w-7")
    work = shop.work("app", "--concurrency", "7")
    work.says(r"(?m)^\d\d:\d\d:\d\d mail welcome w-7 completed in \S+ ms, waited \S+ m?s$")
    mail.add("refuse", {"to": "bob"}, job_id="r-1", attempts=1)
    work.says(r"mail refuse r-1 failed after .*, dead-lettered: ValueError: no such\\naddress")
    head = work.out.splitlines()[:3]
    assert head == [
        f"TamboMQ {tambomq.__version__} works on {server.url}/0 in 1 process",
        "",
        "  mail  7 at a time, app:mail (Jobs): refuse, welcome",
    ]
    # A process reports what it has counted twice a second, so the two may come apart.
    eventually(
        lambda: work.metric("runs_total", job="welcome", outcome="completed") == 1,
        within_s=WITHIN_S,
    )
    eventually(
        lambda: work.metric("failures_total", queue="mail", job="refuse") == 1, within_s=WITHIN_S
    )
    assert work.metric("process_resident_memory_bytes") > 1 << 20
    assert work.stop() == 0


def test_programs_get_json(shop: Shop, mail: BlockingQueue) -> None:
    shop.write(JOBS)
    work = shop.work("app:mail", "--json")
    mail.add("welcome", {"to": "ada"}, job_id="w-7")
    work.says('"event":"run"')
    started, ran = (json.loads(line) for line in work.out.splitlines())
    assert (started["event"], started["targets"][0]["jobs"]) == ("started", ["refuse", "welcome"])
    assert (ran["id"], ran["job"], ran["outcome"]) == ("w-7", "welcome", "completed")
    assert work.stop() == 0
    assert [json.loads(line)["level"] for line in work.err.splitlines()]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("shopp",), "tambo: there is no module 'shopp' in"),
        (("app", "--queue", "mial"), "did you mean 'mail'?"),
    ],
)
def test_what_cannot_be_loaded_is_one_line_with_exit_code_2(
    args: tuple[str, ...], said: str, shop: Shop
) -> None:
    shop.write(JOBS)
    done = tambo("work", *args, "--processes", "2", cwd=shop.folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("app", "--processes", "0"), "'0' is not a whole number, 1 or more"),
        (("app", "--max-rss", "much"), "'much' is not a number of bytes such as"),
        (("app", "--http-port", "70000"), "'70000' is not a port"),
        (("app", "--drain-s", "soon"), "'soon' is not a duration"),
        ((), "Missing argument"),
    ],
)
def test_wrong_options_are_refused(
    args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command, "tambo", ["work", *args]) == 2
    assert said in capsys.readouterr().err


def test_help_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(command, "tambo", ["work", "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_systemd_is_notified(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.write(JOBS)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        work = shop.work("app")
        assert systemd.recv(1000) == b"WATCHDOG=1"
        assert systemd.recv(1000).startswith(b"READY=1\n")
        work.signal(signal.SIGTERM)
        assert systemd.recv(1000) == b"STOPPING=1"
        assert work.wait() == 0
