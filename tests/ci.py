"""A pytest plugin for every run.

A laptop may skip a test and say why; with ``CI=true`` a skip is a failure. What a test writes may
be no text that UTF-8 has bytes for; its report goes from process to process all the same.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

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
