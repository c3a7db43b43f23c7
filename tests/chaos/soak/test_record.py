"""The record of a soak: everything that decides its verdict is in the table."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from tests.chaos.soak.__main__ import Totals
from tests.chaos.soak.record import record

TOTALS = Totals(
    seconds=1800.0,
    confirmed=1_800_500,
    in_time=1_800_000,
    completed=1_800_500,
    doubles=3,
    allowed_doubles=40,
    faults={"cut": 2, "kill": 1},
    slopes_mb_h={"rsmq worker-1.1": (0.4, -0.1), "rsmq redis": (-0.2, -0.5)},
    lake={"rows": 90_000, "confirmed": 90_000, "missing": 0, "twice": 0},
    cpu_s={"rsmq": 900.0},
    subjects={
        "rsmq": {"confirmed": 630_000, "lost": 0},
        "spark": {"confirmed": 90_000, "lost": 0},
    },
)


def test_the_record_has_a_row_for_each_thing_that_is_judged() -> None:
    lines = record(asdict(TOTALS), "passes", rate=1000, seed=17).splitlines()
    assert "30 minutes, seed 17, 1,000 messages a second" in lines[0]
    assert lines[0].endswith(": passes.")
    for row in (
        "| confirmed | 1,800,500, 1,000 a second |",
        "| lost | 0 |",
        "| left at the end | 0 |",
        "| handled twice | 3, of at most 40 |",
        "| faults | 3: cut 2, kill 1 |",
        "| processes that ended by themselves | none |",
        "| lake | rows 90,000, confirmed 90,000, missing 0, twice 0 |",
        "| memory not judged of | spark |",
        "| not flat | nothing |",
        "| cores in use | rsmq 0.50 |",
    ):
        assert row in lines
    assert any("rsmq worker-1.1 +0.40 (at least -0.10)" in line for line in lines)


@pytest.mark.parametrize(
    "broken",
    [
        {"lost": 1},
        {"left": 1},
        {"doubles": 41},
        {"crashed": ["worker-1.1 of rsmq: 1"]},
        {"growing": ["memory of rsmq worker-1.1: 2.00 MB/h"]},
        {"lake": {"rows": 9, "confirmed": 10, "missing": 1, "twice": 0}},
        {"lake": {"rows": 11, "confirmed": 10, "missing": 0, "twice": 1}},
    ],
    ids=str,
)
def test_a_soak_that_breaks_a_promise_fails(broken: dict[str, object]) -> None:
    assert TOTALS.passes
    assert not replace(TOTALS, **broken).passes  # type: ignore[arg-type]
