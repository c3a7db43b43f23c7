from __future__ import annotations

from tambomq.chasqui.repeat import RepeatPattern
from tambomq.console.read.schedules import pattern_text


def test_patterns_are_written_for_people() -> None:
    assert pattern_text(RepeatPattern.every(900_000)) == "every 15 m 00 s"
    assert pattern_text(RepeatPattern.cron("0 9 * * *")) == "0 9 * * *"
    berlin = RepeatPattern.cron("0 9 * * *", tz="Europe/Berlin")
    assert pattern_text(berlin) == "0 9 * * * (Europe/Berlin)"
