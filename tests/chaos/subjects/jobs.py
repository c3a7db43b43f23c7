"""Typed jobs: senders, and `tambo work` with its processes."""

from __future__ import annotations

from typing import Final

from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.roles.jobs_definition import BUDGET
from tests.chaos.subject import Subject
from tests.chaos.subjects.chasqui import dead_jobs, pending_jobs

JOBS: Final = Subject(
    "jobs",
    (
        Role("sender", "tests.chaos.roles.jobs_sender", 2, sends=True),
        Role("work", "tests.chaos.roles.jobs_worker", 2),
    ),
    lambda lease_s: Promises(lease_s, takes_over=True, budget=BUDGET),
    pending=pending_jobs,
    dead=dead_jobs,
)
