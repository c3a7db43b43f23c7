"""Typed jobs that are added as durable as their queue's options ask for."""

from __future__ import annotations

import pytest

from tambomq.errors import NotDurable
from tambomq.jobs import Jobs
from tests.servers import Server


def test_typed_jobs_are_as_durable_as_the_options_of_their_queue_say(
    private_server: Server,
) -> None:
    jobs = Jobs(
        "charges", redis_url=private_server.url, durable="replicas:1", durable_timeout_s=0.05
    )

    @jobs.job
    def charge(order: int) -> int:
        return order

    with pytest.raises(NotDurable, match="0 of 1 replicas"):
        charge.add_sync(7)
    with pytest.raises(NotDurable):
        jobs.add_many_sync([charge.call(8), charge.call(9)])
    assert jobs.blocking_queue.get_job_counts().waiting == 3
    jobs.close_sync()
