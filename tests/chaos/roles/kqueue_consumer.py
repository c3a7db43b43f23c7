"""Receives what KqueueMsgQ delivers: all, or one queue if its number is even."""

from __future__ import annotations

from tambomq.errors import BrokerError
from tambomq.kqueue import Consumer
from tests.chaos.role import RoleContext, main
from tests.chaos.roles.kqueue_producer import QUEUES

_LOOK_EVERY_S = 0.1


def program(context: RoleContext) -> None:
    """Record each message that is received until the program is to end."""
    with Consumer(port=context.target, timeout_s=context.lease_s) as consumer:
        subscribed = False
        while not context.stopping.is_set():
            try:
                if not subscribed:
                    _subscribe(consumer, context.number)
                    subscribed = True
                message = consumer.receive(_LOOK_EVERY_S)
            except BrokerError:
                context.stopping.wait(_LOOK_EVERY_S)
                continue
            if message is not None:
                context.recorder.note("run", message.text)


def _subscribe(consumer: Consumer, number: int) -> None:
    if number % 2:
        consumer.subscribe_all()
    else:
        consumer.subscribe(QUEUES[0])


if __name__ == "__main__":
    main(program)
