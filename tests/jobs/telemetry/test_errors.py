"""Error reports, with the real SDK of Sentry and a transport that records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tambomq.jobs import CancelJob, Context, Jobs, RetryIn
from tambomq.jobs.telemetry import capture_errors, sentry_errors


class Recorder(Transport):
    """Keeps events instead of sending them."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        super().__init__()
        self._events = events

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self._events.append(dict(event))


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    """What Sentry would get."""
    recorded: list[dict[str, Any]] = []
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        transport=Recorder(recorded),
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield recorded
    sentry_sdk.init()


def make(**options: Any) -> Jobs:
    mail = Jobs("mail", redis_url="redis://127.0.0.1:1")
    mail.middleware(sentry_errors(**options))

    @mail.job
    async def welcome(to: str) -> None:
        sentry_sdk.set_tag("own", to)
        raise {"retry": RetryIn(1), "cancel": CancelJob("no")}.get(
            to, ValueError("no such address")
        )

    return mail


async def fail(mail: Jobs, to: str) -> None:
    with pytest.raises((ValueError, RetryIn, CancelJob), match=r"no|1"):
        await mail.test_job(mail.definitions["welcome"], to=to).with_middleware().on_attempt(2)


async def test_an_error_is_reported_with_its_job(events: list[dict[str, Any]]) -> None:
    await fail(make(), "ada")
    [event] = events
    assert event["exception"]["values"][-1]["type"] == "ValueError"
    assert event["transaction"] == "mail.welcome"
    assert event["tags"] == {"job.queue": "mail", "job.name": "welcome", "own": "ada"}
    assert event["contexts"]["job"]["attempt"] == 2
    assert "arguments" not in event["contexts"]["job"]


async def test_arguments_are_sent_when_asked_for(events: list[dict[str, Any]]) -> None:
    await fail(make(arguments=True), "ada")
    assert events[0]["contexts"]["job"]["arguments"] == {"to": "ada"}


async def test_one_run_does_not_see_the_scope_of_another(events: list[dict[str, Any]]) -> None:
    mail = make()
    await fail(mail, "ada")
    await fail(mail, "bob")
    assert [event["tags"]["own"] for event in events] == ["ada", "bob"]
    sentry_sdk.capture_message("outside")
    assert "tags" not in events[2] or "own" not in events[2]["tags"]


@pytest.mark.parametrize("to", ["retry", "cancel"])
async def test_decisions_of_a_function_are_no_errors(events: list[dict[str, Any]], to: str) -> None:
    await fail(make(), to)
    assert events == []


async def test_the_caller_decides_which_errors_are_reported(events: list[dict[str, Any]]) -> None:
    await fail(make(report_if=lambda context, error: context.attempt > 2), "ada")
    assert events == []


async def test_another_service_gets_error_and_context() -> None:
    mail, seen = Jobs("mail", redis_url="redis://127.0.0.1:1"), list[tuple[str, str]]()

    def capture(error: Exception, context: Context) -> None:
        seen.append((str(error), context.name))

    mail.middleware(capture_errors(capture))

    @mail.job
    async def welcome() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await mail.test_job(welcome).with_middleware()
    assert seen == [("no", "welcome")]
