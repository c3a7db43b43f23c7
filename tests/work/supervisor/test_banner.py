"""What `tambo work` says when it has loaded its targets."""

from __future__ import annotations

from tambomq.work.messages import TargetInfo
from tambomq.work.options import WorkOptions
from tambomq.work.supervisor.banner import banner

JOBS = ("charge", "refund", "remind", "report", "resize", "ship", "sync-stock", "welcome", "zip")


def info(queue: str, jobs: tuple[str, ...] = ()) -> TargetInfo:
    return TargetInfo(f"shop.jobs:{queue}", "Jobs", queue, "redis://127.0.0.1:6379", 100, jobs)


def test_many_jobs_are_folded_and_counted() -> None:
    options = WorkOptions(targets=("shop.jobs",))
    lines = banner(options, [info("mail", JOBS), info("q")], None, 60).splitlines()
    assert lines[2:6] == [
        "  mail  100 at a time, shop.jobs:mail (Jobs): charge,",
        "        refund, remind, report, resize, ship, sync-stock,",
        "        welcome, and 1 more",
        "  q     100 at a time, shop.jobs:q (Jobs)",
    ]


def test_a_word_that_is_too_long_is_left_whole() -> None:
    name = "x" * 100
    shown = banner(WorkOptions(targets=("shop.jobs",)), [info(name, JOBS)], None, 20)
    assert name in shown
    assert all(each in shown for each in JOBS[:8])
