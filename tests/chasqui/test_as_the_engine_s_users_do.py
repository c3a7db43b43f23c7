"""Programs and tests written for the engine work, and wrong ones get a clear error."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

from tambomq.chasqui import BlockingQueue, Job, Queue, QueueEvents, Worker
from tambomq.errors import InvalidFormat, InvalidValue
from tests.servers import Server


def test_a_job_for_a_test_is_made_with_the_attempt_that_the_engine_counts() -> None:
    job = Job(id="a", name="mail", data={"n": 1}, attempt=0, created_at_ms=5)
    assert (job.attempts_made, job.attempt) == (0, 1)
    assert job == Job("a", "mail", {"n": 1}, 0, 5)
    assert Job("a", "mail", 1, attempt=2, created_at_ms=5).attempts_made == 2
    for again in (copy.copy(job), pickle.loads(pickle.dumps(job))):  # noqa: S301  (our own)
        assert again == job


@pytest.mark.parametrize("attempt", [-1, 1.5, "1", True, 2**32])
def test_an_attempt_is_a_whole_number(attempt: Any) -> None:
    with pytest.raises(InvalidValue, match="attempt"):
        Job("a", "mail", 1, attempt=attempt, created_at_ms=5)


def test_attempt_and_attempts_made_exclude_each_other() -> None:
    with pytest.raises(InvalidValue, match="attempts_made"):
        Job("a", "mail", 1, attempts_made=1, attempt=1, created_at_ms=5)
    with pytest.raises(InvalidValue, match="attempts_made"):
        Job("a", "mail", 1, 1, 5, attempt=1)


@pytest.mark.parametrize("delay_ms", [math.inf, -math.inf, math.nan])
def test_an_infinite_delay_is_refused(twin: BlockingQueue, delay_ms: float) -> None:
    with pytest.raises(InvalidValue, match="delay_ms must be finite"):
        twin.add("n", 1, delay_ms=delay_ms)


@pytest.mark.parametrize("provider", [("user", "secret"), "secret", 5, lambda: ("user", "secret")])
@pytest.mark.parametrize("kind", [Queue, BlockingQueue, QueueEvents, Worker])
def test_a_credential_provider_that_cannot_be_asked_is_named(kind: Any, provider: Any) -> None:
    args = ("q", print) if kind is Worker else ("q",)
    with pytest.raises(InvalidFormat, match=r"^credential_provider") as caught:
        kind(*args, credential_provider=provider)
    assert "host:port" in str(caught.value)


@pytest.mark.parametrize("answer", [None, "secret", ("secret",), (1, "secret"), {"secret": 1}])
async def test_an_invalid_answer_of_a_credential_provider_is_refused(
    server: Server, answer: Any
) -> None:
    async def later(_: str | None) -> Any:
        return answer

    for provider in (later, lambda _: answer):
        async with Queue("q", redis_url=server.url, credential_provider=provider) as queue:
            with pytest.raises(
                InvalidFormat, match=r"^credential_provider .* user and password"
            ) as e:
                await queue.add("n", 1)
            assert "secret" not in str(e.value)
    with (
        BlockingQueue("q", redis_url=server.url, credential_provider=lambda _: answer) as blocking,
        pytest.raises(InvalidFormat, match=r"^credential_provider"),
    ):
        blocking.add("n", 1)
