"""Runs typed jobs by `tambo work`, in two processes that it supervises."""

from __future__ import annotations

import os
import sys

from tambomq.cli.entry import tambo
from tests.chaos.roles.jobs_definition import VARIABLE

_PROCESSES = "2"


def main() -> None:
    """Become `tambo work`."""
    os.environ[VARIABLE] = sys.argv[1]
    app = "tests.chaos.roles.jobs_app:worker"
    sys.argv = ["tambo", "work", app, "--processes", _PROCESSES, "--quiet"]
    tambo()


if __name__ == "__main__":
    main()
