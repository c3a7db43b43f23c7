"""Which of several addresses of one server to use: ``redis://a,b``.

The one that was a primary when it was last connected to, then all in their order. Each new
connection asks for the role. A replica is used only while no primary can be reached: it can be
read from, and its refusal of a write is transient.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tambomq.store.trip import Address

REPLICA_FOR_S: Final = 1.0
"""After so long a connection to a replica is given up, and a primary looked for again."""


class Choice:
    """What is known of the *nodes* of one endpoint."""

    __slots__ = ("_nodes", "preferred")

    def __init__(self, nodes: tuple[Address, ...]) -> None:
        """Prefer the first."""
        self._nodes = nodes
        self.preferred = nodes[0]
        """The address to try first."""

    def in_order(self, others: Iterable[Address] = ()) -> list[Address]:
        """Return all addresses to try, and then *others*, each once."""
        return list(dict.fromkeys((self.preferred, *self._nodes, *others)))

    def is_primary(self, node: Address) -> None:
        """Prefer *node* from now on, if it was named to us."""
        if node in self._nodes:
            self.preferred = node

    def takes_no_writes(self, node: Address) -> None:
        """Try the one after *node* next: a server need not tell its role to everybody."""
        if node in self._nodes:
            self.preferred = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
