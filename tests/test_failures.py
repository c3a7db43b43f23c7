"""Handlers' errors as text: types, bounded tracebacks, and a log without a flood."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from tambomq import failures
from tambomq.chasqui.keys import check_queue
from tambomq.errors import UnrecoverableError
from tambomq.failures import (
    MAX_TRACEBACK,
    FailureLog,
    from_elsewhere,
    headline,
    of_thread,
    text_of,
    traceback_of,
    type_of,
    with_traceback,
    without_traceback,
)

log = logging.getLogger("tambomq.tests.failures")


class Later:
    """A clock's alarm that rings when the test says so."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.cancelled = 0

    def __call__(self, _after_s: float, then: Callable[[], None]) -> Later:
        self.calls.append(then)
        return self

    def cancel(self) -> None:
        self.cancelled += 1


def raised(make: Callable[[], Any]) -> BaseException:
    try:
        make()
    except BaseException as error:  # noqa: BLE001  (any of them)
        return error
    raise AssertionError


def no_key() -> Any:
    return dict[str, Any]()["to"]


def no_attribute() -> Any:
    return None.to  # type: ignore[attr-defined]


def test_a_key_error_is_described_with_its_type() -> None:
    error = raised(no_key)
    assert headline(type_of(error), text_of(error)) == "KeyError: 'to'"


def test_a_type_has_its_module_unless_it_is_a_builtin() -> None:
    assert type_of(Mute()) == f"{__name__}.Mute"
    assert type_of(raised(lambda: check_queue(""))) == "tambomq.errors.InvalidFormat"
    assert headline(type_of(ValueError()), text_of(ValueError())) == "ValueError"


def test_a_traceback_has_the_line_that_raised() -> None:
    found = traceback_of(raised(no_key)).splitlines()
    assert found[0] == "Traceback (most recent call last):"
    assert found[-1] == "KeyError: 'to'"
    assert any('["to"]' in line for line in found)


def test_a_traceback_begins_in_the_handler_and_ends_where_it_ends() -> None:
    error = raised(lambda: check_queue(""))
    assert error.__traceback__ is not None
    # As if a worker of ours had called `check_queue`, which is ours as well: nothing is left out.
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # type: ignore[union-attr]
    assert "in check_queue" in traceback_of(error)


def refuse() -> None:
    raise UnrecoverableError("unknown job 'x'")


def test_an_error_raised_by_the_worker_itself_has_no_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raised(refuse)
    assert "in refuse" in traceback_of(error)
    # As if this file was one of the worker's.
    monkeypatch.setattr(failures, "_NOT_THE_HANDLER", (__file__,))
    assert traceback_of(error) == ""
    FailureLog(log, "job", "mails", Later()).failed("j1", 1, error)
    assert caplog.records[0].exc_info is None
    # Others may be faults of ours.
    assert "in no_key" in traceback_of(raised(no_key))


def test_an_error_of_another_process_has_the_traceback_of_that_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = raised(no_key)
    error.add_note("In its process:\nTraceback of it")
    monkeypatch.setattr(failures, "_NOT_THE_HANDLER", (__file__,))
    assert traceback_of(error) == "KeyError: 'to'\nIn its process:\nTraceback of it"


@pytest.mark.parametrize("error", [StopIteration(), KeyboardInterrupt(), GeneratorExit()])
def test_an_exception_that_would_end_the_loop_is_wrapped(error: BaseException) -> None:
    wrapped = from_elsewhere(error)
    assert str(wrapped) == f"the handler raised {type(error).__name__}"
    assert wrapped.__cause__ is error
    assert from_elsewhere(wrapped) is wrapped


def test_the_traceback_of_a_thread_starts_below_a_given_call() -> None:
    begun, release = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        release.wait(60)

    def call() -> None:
        wait()

    thread = threading.Thread(target=call)
    thread.start()
    begun.wait(60)
    assert thread.ident is not None
    found = of_thread(thread.ident, call.__code__)
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(found)]
    assert names[0] == "wait"
    assert of_thread(thread.ident, deep.__code__) is None
    release.set()
    thread.join()
    assert of_thread(thread.ident, call.__code__) is None


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    raise ValueError("x" * 100_000)


def test_a_traceback_is_bounded_and_keeps_both_ends() -> None:
    found = traceback_of(raised(lambda: deep(300)))
    assert len(found) <= MAX_TRACEBACK
    assert found.startswith("Traceback (most recent call last):")
    assert "in deep" in found
    assert found.endswith("xxx")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_whose_str_fails_is_described() -> None:
    assert text_of(Mute()) == "Mute"
    assert "Mute" in traceback_of(raised(lambda: (_ for _ in ()).throw(Mute())))


@pytest.mark.parametrize(
    ("reason", "trace"), [("x: y", "Traceback\n  z"), ("", None), ("a\nb", None)]
)
def test_a_reason_and_its_traceback_come_apart_again(reason: str, trace: str | None) -> None:
    assert without_traceback(with_traceback(reason, trace or "")) == (reason, trace)


def test_the_first_of_a_kind_is_logged_in_full_and_repeats_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = Later()
    failure_log = FailureLog(log, "job", "mails", later)
    for number in range(760):
        failure_log.failed(f"j{number}", 1, raised(no_key))
    failure_log.failed("other", 2, raised(no_attribute))
    first, other = caplog.records
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert first.getMessage() == "job 'j0' of queue 'mails' failed in run 1: KeyError: 'to'"
    assert first.exc_info is not None
    assert "in run 2: AttributeError" in other.getMessage()
    [ring] = later.calls
    ring()
    assert caplog.records[2:][0].getMessage() == (
        "queue 'mails': failed 759 more times, the last of them job 'j759': KeyError: 'to'"
    )
    failure_log.flush()
    assert len(caplog.records) == 3


@pytest.mark.parametrize(("what", "field"), [("job", "job"), ("message", "message_id")])
def test_a_failure_has_its_queue_and_id_as_fields(
    what: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures_of_mails = FailureLog(log, what, "mails", Later())
    failures_of_mails.failed("j1", 2, raised(no_key))
    failures_of_mails.failed("j2", 1, raised(no_key))
    failures_of_mails.flush()
    first, repeated = map(vars, caplog.records)
    assert (first["queue"], first[field], first["attempt"]) == ("mails", "j1", 2)
    assert (repeated["queue"], repeated[field], repeated["count"]) == ("mails", "j2", 1)


def test_unreported_repeats_are_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    later = Later()
    failure_log = FailureLog(log, "message", "mails", later)
    failure_log.failed("a", 1, raised(no_key))
    failure_log.failed("b", 1, raised(no_key))
    failure_log.flush()
    assert "failed 1 more time," in caplog.text
    assert later.cancelled == 1
    failure_log.failed("c", 1, raised(no_key))
    assert len(later.calls) == 2


def test_only_so_many_kinds_are_remembered(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MAX_KINDS", 1)
    failure_log = FailureLog(log, "job", "mails", Later())
    for make in (no_key, no_attribute, no_key):
        failure_log.failed("a", 1, raised(make))
    assert len([record for record in caplog.records if record.exc_info]) == 3
