from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tambomq.work.messages import ProcessReport, QueueState, RunningJob
from tambomq.work.supervisor.health import SILENT_S, fault, hanging

READS = QueueState("mail", 0, 10, is_consuming=True, fetched_s_ago=0.1)
SILENT = QueueState("mail", 0, 10, is_consuming=False, fetched_s_ago=40.0)
NEW = QueueState("bills", 0, 10, is_consuming=False, fetched_s_ago=None)


def report(*queues: QueueState, **more: Any) -> ProcessReport:
    fields: dict[str, Any] = {"blocked_s": 0.0, "oldest": None, **more}
    return ProcessReport(rss_bytes=1, queues=list(queues), counts=[], **fields)


@pytest.mark.parametrize(
    ("reported", "age_s", "why"),
    [
        (report(READS), 0.5, ""),
        (report(READS), SILENT_S + 1, "it has reported nothing for 11 s"),
        (report(READS, SILENT), 0, "it has not read from 'mail' for 40 s"),
        (
            report(SILENT, NEW),
            0,
            "it has not read from 'mail' for 40 s; it has not read from 'bills' yet",
        ),
        (report(SILENT, is_stopping=True), 0, ""),
        (
            report(READS, blocked_s=12.0, oldest=RunningJob("mail", "w-7", "welcome", 12)),
            0,
            "its event loop has been blocked for 12 s (mail welcome w-7 runs longest)",
        ),
    ],
)
def test_a_process_is_healthy_if_it_proves_that_it_reads(
    reported: ProcessReport, age_s: float, why: str
) -> None:
    assert fault(reported, age_s) == why


def test_a_process_whose_server_is_away_does_not_hang() -> None:
    now = time.monotonic()

    def slot(number: int, reported: ProcessReport | None, age_s: float = 0) -> Any:
        child = SimpleNamespace(number=number, report=reported, reported_at=now - age_s)
        return SimpleNamespace(child=child)

    slots = [
        slot(1, report(SILENT, NEW)),
        slot(2, None),
        SimpleNamespace(child=None),
        slot(3, report(READS), SILENT_S + 1),
        slot(4, report(READS, blocked_s=12.0)),
    ]
    assert {number: why.split(" for ")[0] for number, why in hanging(slots).items()} == {
        3: "it has reported nothing",
        4: "its event loop has been blocked",
    }
