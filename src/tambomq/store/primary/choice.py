"""The order in which several addresses of one server are tried: ``redis://a,b``.

First the last known primary, then all in the order of the URL. Each new connection asks for the
role. A replica is used only while no primary can be reached: reads work, and the error it gives
for a write is transient.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tambomq.store.roundtrip import Address

REPLICA_FOR_S: Final = 1.0
"""A connection to a replica is closed after this time, to look for a primary again."""


class Choice:
    """The preferred node of an endpoint with several *nodes*."""

    __slots__ = ("_nodes", "preferred")

    def __init__(self, nodes: tuple[Address, ...]) -> None:
        """Prefer the first node."""
        self._nodes = nodes
        self.preferred = nodes[0]
        """The address to try first."""

    def is_outdated(self, _after_s: float = 0.0) -> bool:
        """Return false: only new connections tell which node is the primary."""
        return False

    def in_order(self, others: Iterable[Address] = ()) -> list[Address]:
        """Return all addresses to try, and then *others*, each once."""
        return list(dict.fromkeys((self.preferred, *self._nodes, *others)))

    def is_primary(self, node: Address) -> None:
        """Prefer *node* from now on, even if only a cluster's redirections named it."""
        self.preferred = node

    def takes_no_writes(self, node: Address) -> None:
        """Prefer the node after *node*: it refused a write, whatever role it reported."""
        if node in self._nodes:
            self.preferred = self._nodes[(self._nodes.index(node) + 1) % len(self._nodes)]
        elif node == self.preferred:
            self.preferred = self._nodes[0]
