"""Journals on the command line: written by sends, shown by counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.cli.chasqui import chasqui
from tambomq.cli.main import tambo
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.journal.looking import bodies, commit_all
from tests.servers import Server

Run = Callable[..., Done]


@pytest.fixture
def rsmq_command(server: Server, rsmq: Rsmq) -> Run:
    """``tambo rsmq`` on a server that has the queue ``orders``."""
    rsmq.create_queue("orders")
    return partial(call, tambo, "tambo", "rsmq", url=server.url)


@pytest.fixture
def chasqui_command(server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``chasqui`` on an empty server."""
    monkeypatch.delenv("CHASQUI_REDIS_URL", raising=False)
    return partial(call, chasqui, "chasqui", url=server.url)


def test_rsmq_records_what_it_sends_if_asked(rsmq_command: Run, server: Server) -> None:
    assert rsmq_command("message", "send", "-n", "orders", "-m", "a").code == 0
    assert rsmq_command("message", "send", "-n", "orders", "-m", "b", "--journal").code == 0
    assert bodies(server.url, "rsmq", "orders") == [b"b"]


def test_rsmq_stats_include_the_journal(rsmq_command: Run, server: Server) -> None:
    words = ("queue", "stats", "-n", "orders")
    assert "journal" not in rsmq_command(*words).out
    assert "journal" not in json.loads(rsmq_command(*words, "--json").out)
    rsmq_command("message", "send", "-n", "orders", "-m", "one", "--journal")
    commit_all(server.url, "rsmq", "orders")
    assert "journal entries" in rsmq_command(*words).out
    assert "reader etl is behind by" in rsmq_command(*words).out
    shown = json.loads(rsmq_command(*words, "--json").out)["journal"]
    assert (shown["entries"], shown["bytes"], shown["refused"]) == (1, 103, 0)
    assert [(each["name"], each["lag_bytes"]) for each in shown["readers"]] == [("etl", 0)]


def test_the_journal_of_a_namespace_is_shown_with_its_queue(
    rsmq_command: Run, server: Server
) -> None:
    for words in (
        ("queue", "create", "-n", "q"),
        ("message", "send", "-n", "q", "-m", "x", "--journal"),
    ):
        assert rsmq_command("--ns", "mine", *words).code == 0
    assert bodies(server.url, "rsmq", "mine:q") == [b"x"]
    shown = json.loads(rsmq_command("--ns", "mine", "queue", "stats", "-n", "q", "--json").out)
    assert shown["journal"]["entries"] == 1


def test_chasqui_records_what_it_adds_if_asked(chasqui_command: Run, server: Server) -> None:
    assert chasqui_command("add", "emails", "hello", "1").code == 0
    assert "journal" not in chasqui_command("inspect", "emails").out
    assert chasqui_command("add", "emails", "hello", "2", "--journal").code == 0
    lines = b"3\n4\n"
    assert chasqui_command("add", "emails", "hello", "--bulk", "--journal", stdin=lines).code == 0
    assert bodies(server.url, "chasqui", "emails") == [encode_payload(n) for n in (2, 3, 4)]
    assert "journal entries" in chasqui_command("inspect", "emails").out
    shown = json.loads(chasqui_command("inspect", "emails", "--json").out)
    assert shown["journal"]["entries"] == 3


def test_a_repeatable_job_cannot_be_added_with_a_journal(chasqui_command: Run) -> None:
    done = chasqui_command("add", "emails", "hello", "--every", "1h", "--journal")
    assert done.code == 2
    assert "the scheduler records repeatable jobs" in done.err
