"""``tambo doctor`` on real servers, well and badly configured."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import pytest
import redis

from tambomq.cli.main import tambo
from tests.cli.running import COMMAND, WITHIN_S
from tests.cli.transcript import Done, call
from tests.serve.processes import clean_environment, serving
from tests.servers import Server, binaries
from tests.servers.refusal import Refusal, refusing_writes

UNREACHABLE = "redis://127.0.0.1:1"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(binaries.valkey(), "--appendonly", "yes", "--maxmemory", "100mb") as server:
        yield server


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other programs' ports are none of the tests' business: every component takes any."""
    monkeypatch.chdir(tmp_path)
    for component in ("GOMQ", "KQUEUE", "HTTP", "SERVER_REDIS"):
        monkeypatch.setenv(f"TAMBO_{component}_PORT", "0")


def doctor(url: str, *args: str) -> Done:
    return call(tambo, "tambo", "doctor", "--redis-url", url, *args, url=UNREACHABLE)


def findings(url: str, code: int, *args: str) -> dict[str, list[tuple[str, str, str]]]:
    """What is found, by what it is about."""
    result = doctor(url, "--json", *args)
    assert result.code == code, result
    report = json.loads(result.out)
    assert report["ok"] is (code == 0)
    found: dict[str, list[tuple[str, str, str]]] = {}
    for each in report["findings"]:
        found.setdefault(each["about"], []).append((each["level"], each["finding"], each["next"]))
    return found


@contextmanager
def configured(server: Server, **settings: str) -> Iterator[Any]:
    """Change settings of *server*, and change them back."""
    with redis.Redis.from_url(server.url) as db:
        admin: Any = db
        names = {name.replace("_", "-"): value for name, value in settings.items()}
        before = {name: admin.config_get(name)[name] for name in names}
        for name, value in names.items():
            admin.config_set(name, value)
        try:
            yield admin
        finally:
            for name, value in before.items():
                admin.config_set(name, value)


def test_well_configured_server_has_nothing_wrong(server: Server) -> None:
    found = findings(server.url, 0)
    for about in ("server", "writes", "eviction", "persistence", "memory", "clock", "scripts"):
        assert [level for level, *_ in found[about]] == ["ok"], found[about]
    assert found["server"][0][1].startswith("Valkey 9")
    assert found["persistence"][0][1] == "append-only file, flushed every second"
    assert found["permissions"] == [("ok", "the user default may run what all protocols need", "")]


@pytest.mark.parametrize(
    ("settings", "about", "level", "words"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "eviction", "wrong", "deletes queues when memory"),
        ({"maxmemory_policy": "volatile-ttl"}, "eviction", "look", "deletes locks and results"),
        ({"appendonly": "no", "save": ""}, "persistence", "wrong", "loses all messages"),
        ({"appendonly": "no", "save": "60 1"}, "persistence", "look", "snapshots alone"),
        ({"appendfsync": "no"}, "persistence", "look", "when the system likes to"),
        ({"maxmemory": "0"}, "memory", "look", "without a limit"),
        ({"maxmemory": "500kb"}, "memory", "wrong", "sends are refused"),
    ],
)
def test_misconfiguration_is_found_with_what_to_do(
    server: Server, settings: dict[str, str], about: str, level: str, words: str
) -> None:
    with configured(server, **settings):
        found = findings(server.url, 1 if level == "wrong" else 0)
    (seen,) = [each for each in found[about] if each[0] != "ok"]
    assert seen[0] == level
    assert words in seen[1]
    assert seen[2], "it says what to do"


@pytest.mark.parametrize("why", ["NOREPLICAS", "READONLY", "MISCONF"])
def test_a_server_that_refuses_writes_is_reported_as_wrong(why: Refusal) -> None:
    with Server(binaries.valkey()) as server, refusing_writes(server, why):
        found = findings(server.url, 1)
    level, text, advice = found["writes"][0]
    assert (level, text.startswith(f"writes are refused: {why}")) == ("wrong", True), text
    assert advice
    if why == "READONLY":
        assert found["replicas"][0][1] == "this is a replica of 127.0.0.1:1"
    if why == "MISCONF":
        assert found["persistence"][0][1] == "the last snapshot (RDB) could not be written"


def test_unreachable_server_is_reported_with_advice(server: Server) -> None:
    found = findings(UNREACHABLE, 1)
    assert found["server"][0][0] == "wrong"
    assert "cannot reach redis://127.0.0.1:1/0" in found["server"][0][1]
    assert "`tambo serve` starts one" in found["server"][0][2]
    assert "installation" in found, "the machine is checked all the same"
    assert "overcommit" not in found


def test_wrong_password_is_said_and_not_shown() -> None:
    with Server(binaries.valkey(), password="right") as server:
        url = server.url.replace("right", "hidden-word")
        assert "hidden-word" in url
        result = doctor(url, "--json")
    assert result.code == 1
    (found,) = [f for f in json.loads(result.out)["findings"] if f["about"] == "server"]
    assert found["finding"].startswith("the login is refused: redis://127.0.0.1:")
    assert "WRONGPASS" in found["finding"]
    assert "hidden-word" not in result.out + result.err


def test_permissions_are_checked_by_protocol(server: Server) -> None:
    with redis.Redis.from_url(server.url) as db:
        admin: Any = db
        rights = ("~rsmq:*", "&rsmq:rt:*", "+@read", "+@write", "+@scripting", "+@connection")
        admin.execute_command("ACL", "SETUSER", "queues", "on", ">pass", *rights, "+time", "+info")
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">pass", "~*", "+@all", "-xadd")
        admin.execute_command("ACL", "SETUSER", "silent", "on", ">pass", "~*", "+@all", "-eval")
        admin.execute_command("ACL", "SETUSER", "silent", "-evalsha", "-@scripting")
    at = server.url.partition("://")[2]
    one = findings(f"redis://queues:pass@{at}", 0)["permissions"]
    assert [(level, text.rpartition(": ")[2]) for level, text, _ in one] == [
        ("look", "ChasquiMQ needs it"),
        ("look", "GOMQ needs it"),
        ("look", "journals needs it"),
    ]
    two = findings(f"redis://reader:pass@{at}", 0)["permissions"]
    assert two[0][1] == "the user reader may not run XADD: ChasquiMQ needs it"
    three = findings(f"redis://silent:pass@{at}", 1)
    assert three["scripts"][0][1].startswith("scripts are refused: NOPERM")


def test_restricted_embedded_server_is_examined(tmp_path: Path) -> None:
    with serving(tmp_path) as serve:
        assert serve.ready
        found = findings(serve.url, 0)
    assert found["persistence"] == [("ok", "append-only file", "")]
    assert [level for level, *_ in found["permissions"]] == ["ok"]


def test_terminal_of_80_columns_is_enough(server: Server, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "doctor", "--redis-url", server.url]
    env = {**clean_environment(), "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env, cwd=tmp_path)
    os.close(theirs)
    drawn = b""
    with suppress(OSError):
        while data := os.read(ours, 65_536):
            drawn += data
    os.close(ours)
    assert process.wait(WITHIN_S) == 0
    lines = click.unstyle(drawn.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].startswith("0 wrong, ")
