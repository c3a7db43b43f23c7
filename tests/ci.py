"""A pytest plugin for every run.

A laptop may skip a test and say why; with ``CI=true`` a skip is a failure. pytest-xdist hands out
tests in the order of `tests.groups.in_order`. What a test writes may be no text that UTF-8 has
bytes for; its report goes from process to process all the same. The log that a test sees has
pytest's format, whatever other tests of its process have imported.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from tests.groups import in_order, unit_of

_IN_CI = os.environ.get("CI") == "true"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the format of the handlers that pytest attaches to loggers.

    It attaches them to each logger that does not propagate, and PySpark's loggers give their
    format (JSON) to any handler, once and for all tests that follow in this process.
    """
    plugin: Any = session.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        vars(handler)["setFormatter"] = lambda formatter: None


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


@pytest.hookimpl(trylast=True)  # when groups are marked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("loadgroup", default=False):
        items[:] = in_order(items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Add the groups to the test ids that a process of pytest-xdist sends.

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
    unit = unit_of(item)
    return item.nodeid if unit == item.nodeid else f"{item.nodeid}@{unit}"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Make pytest-xdist hand out groups in the order in which they were collected."""
    if config.getoption("dist", default="no") == "loadgroup":
        config.option.loadscopereorder = False


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
