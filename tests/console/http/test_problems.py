from __future__ import annotations

import msgspec
import pytest

from tambomq.console.http.problems import Problem, problem_of
from tambomq.errors import (
    ActionRefused,
    InvalidFormat,
    JobBusy,
    QueueNotFound,
    StoreFull,
    StoreUnavailable,
    TamboError,
)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (QueueNotFound("mail"), 404, "queue_not_found"),
        (InvalidFormat("queue", "x", "a name"), 400, "invalid_format"),
        (JobBusy("mail", "1", "w"), 409, "job_busy"),
        (StoreUnavailable("cannot reach h"), 503, "store_unavailable"),
        (StoreFull("out of memory"), 503, "store_full"),
        (ActionRefused("RSMQ has no pause"), 409, "action_refused"),
        (TamboError("odd"), 500, "tambo_error"),
    ],
)
def test_an_error_has_a_status_and_a_kind(error: TamboError, status: int, kind: str) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.kind) == (status, kind)


def test_a_title_is_a_sentence() -> None:
    assert problem_of(QueueNotFound("mail")).title == "Queue 'mail' does not exist."


def test_passwords_are_masked() -> None:
    error = StoreUnavailable("cannot reach redis://u:s3cret@h:6379")
    assert "s3cret" not in problem_of(error).detail.title


def test_text_that_utf8_has_no_form_for_can_be_sent() -> None:
    detail = Problem(400, "parameter", "queue '\ud800'").detail
    assert b"ud800" in msgspec.json.encode(detail)
