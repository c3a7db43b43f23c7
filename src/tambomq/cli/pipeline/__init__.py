"""The group ``tambo pipeline``: archives, reports on, repairs and moves queues."""

from __future__ import annotations

from typing import Final

import click

from tambomq.cli.lazy import LazyCommand, LazyGroup

COMMANDS: Final[dict[str, LazyCommand]] = {
    "run": LazyCommand("tambomq.cli.pipeline.run", "run", "Follow queues into the lake."),
    "compact": LazyCommand(
        "tambomq.cli.pipeline.compact", "compact", "Merge the lake's small files."
    ),
    "report": LazyCommand(
        "tambomq.cli.pipeline.report", "report", "Make a page of charts from the lake."
    ),
    "sql": LazyCommand("tambomq.cli.pipeline.sql", "sql", "Query queues and the lake with SQL."),
    "replay": LazyCommand(
        "tambomq.cli.pipeline.replay", "replay_command", "Send the messages of a lake again."
    ),
    "migrate": LazyCommand(
        "tambomq.cli.pipeline.migrate", "migrate_command", "Move all that is in a queue to another."
    ),
    "dlq": LazyCommand("tambomq.cli.pipeline.dlq", "dlq", "Count dead letters, and redrive them."),
    "audit": LazyCommand(
        "tambomq.cli.pipeline.audit", "audit", "Check queues for damage, and repair it."
    ),
    "leases": LazyCommand(
        "tambomq.cli.pipeline.leases", "leases", "List the leases of queries, and end them."
    ),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def pipeline() -> None:
    """Archive, query, repair and move the messages of queues."""
