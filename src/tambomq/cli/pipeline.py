"""The command ``tambo pipeline``: what can be done with queues as a whole, most of it by Spark."""

from __future__ import annotations

from typing import Final

import click

from tambomq.cli.lazy import Entry, LazyGroup

COMMANDS: Final[dict[str, Entry]] = {
    "run": Entry("tambomq.cli.pipeline_run", "run", "Follow queues into the lake."),
    "compact": Entry(
        "tambomq.cli.pipeline_compact", "compact", "Put the lake's small files together."
    ),
    "report": Entry(
        "tambomq.cli.pipeline_report", "report", "Make a page of charts from the lake."
    ),
    "sql": Entry("tambomq.cli.pipeline_sql", "sql", "Ask queues and the lake in SQL."),
    "replay": Entry(
        "tambomq.cli.pipeline_replay", "replay_command", "Send what a lake has kept once more."
    ),
    "migrate": Entry(
        "tambomq.cli.pipeline_migrate", "migrate_command", "Move all that is in a queue to another."
    ),
    "dlq": Entry(
        "tambomq.cli.pipeline_dlq", "dlq", "Count dead letters, and let them be delivered again."
    ),
    "audit": Entry(
        "tambomq.cli.pipeline_audit", "audit", "Look for damage in what queues keep, and mend it."
    ),
    "leases": Entry(
        "tambomq.cli.pipeline_leases", "leases", "Look at what queries have taken, and end leases."
    ),
}


@click.group(cls=LazyGroup, entries=COMMANDS)
def pipeline() -> None:
    """Archive what passes through queues, look at it, mend it and move it."""
