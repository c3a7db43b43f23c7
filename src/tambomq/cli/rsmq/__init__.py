"""``tambo rsmq``: inspect RSMQ queues, send, receive and delete messages."""

from __future__ import annotations

import click

from tambomq.cli.output import example
from tambomq.cli.rsmq.client import ns_option, url_option
from tambomq.cli.rsmq.messages import message
from tambomq.cli.rsmq.queues import queue


@click.group(
    epilog=example(
        "tambo rsmq queue create -n orders",
        "tambo rsmq message send -n orders -m 'first' -m 'second'",
        "tambo rsmq message peek -n orders",
        "tambo rsmq message receive -n orders --json",
    )
    + "\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 nothing there."
)
@url_option("--redis-url", env=["TAMBO_REDIS_URL", "REDIS_URL"])
@ns_option
def rsmq() -> None:
    """Inspect RSMQ queues, send, receive and delete messages.

    Bodies are any bytes, names are those of every RSMQ client: queues are shared with all of them.
    """


rsmq.add_command(queue)
rsmq.add_command(message)
