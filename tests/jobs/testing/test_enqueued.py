"""`assert_enqueued` and its opposite, with what they say when they fail."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tambomq.errors import InvalidFormat
from tambomq.jobs import Jobs
from tambomq.testing import assert_enqueued, assert_not_enqueued
from tests.servers import Server

AT = datetime(2026, 1, 1, tzinfo=UTC)


def make(server: Server) -> Jobs:
    mail = Jobs("mail", redis_url=server.url)

    @mail.job
    async def welcome(to: str, at: datetime = AT, *, lang: str = "en") -> None: ...

    @mail.job
    async def report() -> None: ...

    return mail


async def test_a_job_is_found_by_some_of_its_arguments(server: Server) -> None:
    async with make(server) as mail:
        welcome, report = mail.definitions["welcome"], mail.definitions["report"]
        assert_not_enqueued(welcome)
        added = await welcome.add("ada", AT)
        await welcome.options(delay_s=3600, job_id="w-7").add(to="bob", lang="qu")
        assert assert_enqueued(welcome, to="ada").id == added.id
        assert assert_enqueued(welcome, "ada", at=AT, lang="en").id == added.id
        assert assert_enqueued(welcome, lang="qu").due_at_ms is not None
        assert_enqueued(welcome.options(delay_s=3600), to="bob")
        assert_enqueued(welcome.options(job_id="w-7"))
        assert_not_enqueued(welcome, to="eve")
        assert_not_enqueued(welcome.options(delay_s=9000), to="bob")
        assert_not_enqueued(report)


async def test_a_failure_shows_what_is_in_the_queue_and_what_differs(server: Server) -> None:
    async with make(server) as mail:
        welcome, report = mail.definitions["welcome"], mail.definitions["report"]
        with pytest.raises(AssertionError) as empty:
            assert_enqueued(welcome, to="ada")
        assert str(empty.value) == "no job welcome(to='ada') in queue 'mail', which is empty"
        await report.add()
        await welcome.options(delay_s=60).add(to="bob")
        with pytest.raises(AssertionError) as other:
            assert_enqueued(welcome, to="ada", lang="qu")
        assert str(other.value).splitlines() == [
            "no job welcome(to='ada', lang='qu') in queue 'mail'; it has 2:",
            "  delayed  welcome(to='bob')  ← to is 'bob', not 'ada'; lang is 'en', not 'qu'",
            "  waiting  report()",
        ]
        with pytest.raises(AssertionError) as there:
            assert_not_enqueued(welcome)
        assert str(there.value).splitlines() == [
            "queue 'mail' has welcome():",
            "  delayed  welcome(to='bob')",
        ]


def test_a_plain_function_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="decorator"):
        assert_enqueued(print)  # type: ignore[arg-type]


async def test_pytest_shows_the_line_of_the_test_that_failed_and_not_ours(server: Server) -> None:
    async with make(server) as mail:
        welcome = mail.definitions["welcome"]
        with pytest.raises(AssertionError) as missing:
            assert_enqueued(welcome)
        await welcome.add("ada")
        with pytest.raises(AssertionError) as found:
            assert_not_enqueued(welcome)
    for shown in (str(missing.getrepr()), str(found.getrepr())):
        assert "enqueued(welcome)" in shown
        assert "raise AssertionError" not in shown
