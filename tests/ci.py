"""A pytest plugin: a laptop may skip a test and say why; with ``CI=true`` a skip is a failure."""

from __future__ import annotations

import os
from collections.abc import Generator

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


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
