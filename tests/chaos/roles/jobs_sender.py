"""Adds typed jobs, one after another."""

from __future__ import annotations

from tests.chaos.role import KINDS, RoleContext, main
from tests.chaos.roles.jobs_definition import define


def program(context: RoleContext) -> None:
    """Add jobs until the program is to end."""
    jobs, run = define(context)
    for message in context.messages(kinds={**KINDS, "later": 0}):
        with context.sending(message):
            run.add_sync(message.text)
    jobs.close_sync()


if __name__ == "__main__":
    main(program)
