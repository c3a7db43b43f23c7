"""The group ``tambo pipeline``: archives, reports on, repairs and moves queues."""

from __future__ import annotations

from typing import Final

import click

from tambomq.cli.lazy import LazyCommand, LazyGroup

COMMANDS: Final[dict[str, LazyCommand]] = {
    "run": LazyCommand("tambomq.cli.pipeline.run", "run", "Follow queues into the lake."),
    "compact": LazyCommand(
        "tambomq.cli.pipeline.compact", "compact", "Put the lake's small files together."
    ),
    "report": LazyCommand(
        "tambomq.cli.pipeline.report", "report", "Make a page of charts from the lake."
    ),
    "sql": LazyCommand("tambomq.cli.pipeline.sql", "sql", "Ask queues and the lake in SQL."),
    "replay": LazyCommand(
        "tambomq.cli.pipeline.replay", "replay_command", "Send what a lake has kept once more."
    ),
    "migrate": LazyCommand(
        "tambomq.cli.pipeline.migrate", "migrate_command", "Move all that is in a queue to another."
    ),
    "dlq": LazyCommand(
        "tambomq.cli.pipeline.dlq", "dlq", "Count dead letters, and let them be delivered again."
    ),
    "audit": LazyCommand(
        "tambomq.cli.pipeline.audit", "audit", "Look for damage in what queues keep, and mend it."
    ),
    "leases": LazyCommand(
        "tambomq.cli.pipeline.leases", "leases", "Look at what queries have taken, and end leases."
    ),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def pipeline() -> None:
    """Archive what passes through queues, look at it, mend it and move it."""
