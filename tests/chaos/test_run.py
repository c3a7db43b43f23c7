"""A chaos run: what it starts it ends, and what it finds it shows."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.member import Member, Role, Surroundings
from tests.chaos.nemeses import NEMESES
from tests.chaos.run import run
from tests.chaos.subjects import SUBJECTS
from tests.servers import eventually

LEASE_S = 4.0
_RUDE = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
pathlib.Path({ready!r}).touch()
while True:
    signal.pause()
"""


@pytest.mark.slow
def test_a_run_does_its_faults_and_leaves_no_process(tmp_path: Path) -> None:
    nemeses = [NEMESES["kill-worker"], NEMESES["cut"]]
    verdict = run(
        SUBJECTS["rsmq"], nemeses, seconds=6, seed=1, folder=tmp_path, lease_s=LEASE_S, pause_s=1
    )
    assert verdict.violations == ()
    assert verdict.counts["confirmed"] > 0
    assert verdict.counts["did kill-worker"] > 0
    assert not _processes(tmp_path)


def test_a_process_that_ends_by_itself_is_a_violation(tmp_path: Path) -> None:
    subject = replace(SUBJECTS["rsmq"], roles=(Role("broken", "tests.chaos.roles"),))
    verdict = run(subject, [], seconds=1, seed=1, folder=tmp_path, lease_s=LEASE_S)
    assert "crashed" in verdict.kinds


def test_a_sender_that_does_not_end_as_asked_is_a_violation(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "rude.py").write_text(_RUDE.format(ready=str(tmp_path / "ready")))
    subject = replace(
        SUBJECTS["kqueue"],
        roles=(Role("rude", "rude", to="", sends=True),),
        is_ready=lambda world: (world.folder / "ready").exists(),
    )
    verdict = run(subject, [], seconds=0, seed=1, folder=tmp_path, source=source)
    assert [each.message.partition(":")[0] for each in verdict.violations] == [
        "rude-1.1 ended with 3"
    ]


def test_a_member_gets_another_name_at_each_start(tmp_path: Path) -> None:
    role = Role("sender", "tests.chaos.roles.rsmq_sender", to="")
    member = Member(role, 1, Surroundings(tmp_path, 1, LEASE_S, Path("src").absolute()))
    try:
        for start in (1, 2):
            member.start()
            assert member.actor == f"sender-1.{start}"
            member.kill()
    finally:
        member.kill()


def _processes(folder: Path) -> list[str]:
    """The command lines of the processes that have *folder* among their arguments."""

    def found() -> list[str]:
        lines = subprocess.run(["ps", "-Aww", "-o", "args"], capture_output=True, check=True)
        return [line for line in lines.stdout.decode().splitlines() if str(folder) in line]

    eventually(lambda: not found())
    return found()
