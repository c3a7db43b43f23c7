from __future__ import annotations

import json
import re

import pytest

from tambomq.runtime.observer import RunRecord
from tambomq.work.process.run_lines import MAX_ERROR, MAX_KEPT, RunPrinter, json_line, line

RECORD = RunRecord("mail", "w-7", "welcome", 1, "completed", 3, 12_000, "")
FAILED = RunRecord("mail", "w\n7", "welcome", 2, "dead", 3, 400, "ValueError: a\nb" + "x" * 500)


def test_a_run_is_a_line() -> None:
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d mail welcome w-7 completed in 12 ms, waited 3 ms", line(RECORD, 0)
    )


def test_a_failed_run_says_why_on_the_same_line() -> None:
    shown = line(FAILED, 0)
    assert (
        "mail welcome w\\n7 failed after 0.4 ms, waited 3 ms, attempt 2, dead-lettered: " in shown
    )
    assert shown.endswith("x…")
    assert len(shown) < MAX_ERROR + 100
    assert "\n" not in shown


def test_programs_get_an_object() -> None:
    entry = json.loads(json_line(RECORD, 0, 2))
    assert entry == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "event": "run",
        "process": 2,
        "queue": "mail",
        "job": "welcome",
        "id": "w-7",
        "attempt": 1,
        "outcome": "completed",
        "waited_ms": 3,
        "took_ms": 12.0,
        "error": "",
    }


@pytest.mark.parametrize("as_json", [True, False])
def test_what_a_slow_reader_does_not_take_is_counted(
    as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    printer = RunPrinter(1, as_json=as_json)
    for _ in range(MAX_KEPT + 5):
        printer.show(RECORD)
    printer.start()
    printer.close(within_s=20)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == MAX_KEPT + 1
    assert "5" in lines[-1]
    if as_json:
        assert json.loads(lines[-1])["count"] == 5
