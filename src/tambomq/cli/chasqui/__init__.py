"""The command ``chasqui``, also ``tambo chasqui``: manage ChasquiMQ queues."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from tambomq.cli.chasqui import add as chasqui_add
from tambomq.cli.chasqui import dlq as chasqui_dlq
from tambomq.cli.chasqui import events as chasqui_listen
from tambomq.cli.chasqui import inspect as chasqui_look
from tambomq.cli.chasqui import jobs as chasqui_jobs
from tambomq.cli.chasqui import leaders as chasqui_lead
from tambomq.cli.chasqui import manage as chasqui_manage
from tambomq.cli.chasqui import repeat as chasqui_repeat
from tambomq.cli.chasqui.client import ENV, url_option
from tambomq.cli.output import example, run, verbose_option

PROG: Final = "chasqui"


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  (click's signature)
        """Return the names."""
        return list(self.commands)


@click.group(
    cls=OrderedGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example(
        """chasqui add emails welcome '{"to": "ada@example.com"}'""",
        "chasqui inspect emails",
        "chasqui dlq replay emails --reason retries_exhausted",
        "chasqui events emails --from 0",
    )
    + "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing there.",
)
@click.version_option(package_name="tambomq", prog_name=PROG)
@url_option(env=ENV)
@verbose_option
def chasqui() -> None:
    """Inspect ChasquiMQ queues, add jobs and manage them."""


for _command in (
    chasqui_look.queues,
    chasqui_look.inspect,
    chasqui_look.watch,
    chasqui_look.counts,
    chasqui_jobs.workers,
    chasqui_jobs.job,
    chasqui_listen.events,
    chasqui_listen.result,
    chasqui_add.add,
    chasqui_manage.cancel,
    chasqui_repeat.repeatable,
    chasqui_dlq.dlq,
    chasqui_manage.pause,
    chasqui_manage.resume,
    chasqui_manage.drain,
    chasqui_manage.clean,
    chasqui_manage.obliterate,
    chasqui_lead.promoter,
    chasqui_lead.scheduler,
):
    chasqui.add_command(_command)


def main(args: Sequence[str] | None = None) -> None:
    """Run ``chasqui`` and end the process with its exit code."""
    sys.exit(run(chasqui, PROG, args))
