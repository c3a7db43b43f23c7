"""A pytest plugin for every run.

A laptop may skip a test and say why; with ``CI=true`` a skip is a failure. pytest-xdist hands out
the tests that share Spark before all others, because they take longest. What a test writes may be
no text that UTF-8 has bytes for; its report goes from process to process all the same.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from tests.groups import SPARK

_IN_CI = os.environ.get("CI") == "true"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if _IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    return sendable((yield))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the names that a process of pytest-xdist sends carry the groups.

    It would do so itself (`--dist=loadgroup`), in a way that pytest 9.2 does not know any more.
    """
    if not session.config.getoption("loadgroup", default=False):
        return
    for process in session.config.pluginmanager.get_plugins():
        if send := getattr(process, "sendevent", None):
            vars(process)["sendevent"] = partial(_send_with_groups, send, session.items)


def _send_with_groups(send: Any, items: list[pytest.Item], name: str, **words: Any) -> None:
    if name == "collectionfinish":
        words["ids"] = [_with_group(item) for item in items]
    send(name, **words)


def _with_group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return f"{item.nodeid}@{marker.args[0]}" if marker else item.nodeid


@pytest.hookimpl(optionalhook=True)  # known where pytest-xdist is
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # noqa: PLC0415  (only where it is in use)

    made: Any = LoadGroupScheduling(config, log)
    assign = made._assign_work_unit

    def spark_first(node: Any) -> None:
        if SPARK in made.workqueue:
            made.workqueue.move_to_end(SPARK, last=False)
        assign(node)

    made._assign_work_unit = spark_first
    return made


def sendable(data: Any) -> Any:
    r"""*data* of a report with each lone surrogate spelled out, as in ``\udcff``.

    pytest-xdist sends reports as UTF-8, which has no bytes for them, and would end the run.
    """
    match data:
        case str():
            return data.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {sendable(key): sendable(value) for key, value in data.items()}
        case list() | tuple():
            return type(data)(map(sendable, data))
        case _:
            return data


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
