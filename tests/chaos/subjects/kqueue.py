"""KqueueMsgQ: producers, a server, and consumers. Nothing is stored, so nothing of it is promised.

What is: nothing from nowhere, nothing twice, and the order of each producer.
"""

from __future__ import annotations

from typing import Final

from tests.chaos.checker import Promises
from tests.chaos.member import Role
from tests.chaos.subject import Subject

KQUEUE: Final = Subject(
    "kqueue",
    (
        Role("server", "tests.chaos.roles.kqueue_server", to="", serves=True),
        Role("producer", "tests.chaos.roles.kqueue_producer", 2, to="server", sends=True),
        Role("consumer", "tests.chaos.roles.kqueue_consumer", 2, to="server"),
    ),
    lambda lease_s: Promises(lease_s, keeps=False, exclusive=False, once=True, ordered=True),
)
