"""Faults planted in what guarantees rest on: each is seen by the test that is named for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.faults import FAULTS
from tests.mutants.planting import ROOT, Fault, is_killed, outcome

LEAST = 30

every_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@every_fault
def test_a_planted_fault_fails_its_test(fault: Fault, tmp_path: Path) -> None:
    code, output = outcome(fault, tmp_path)
    assert is_killed(code), f"{fault.test} passes although {fault.name}\n{output}"


@every_fault
def test_a_fault_can_be_planted_and_its_test_exists(fault: Fault) -> None:
    assert fault.planted() != fault.path.read_text("utf-8")
    file, _, name = fault.test.partition("::")
    text = (ROOT / "tests" / file).read_text("utf-8")
    assert f"def {name.partition('[')[0]}(" in text, fault.test


def test_faults_are_many_and_their_names_are_unique() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= LEAST
