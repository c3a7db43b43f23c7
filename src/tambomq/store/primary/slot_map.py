"""What redirections have said of a cluster: the node of each slot, and which nodes there are.

A node that cannot be reached loses its slots, so that other nodes are asked for them. Its address
is kept: it may be the only one left that answers once the nodes of the URL are gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tambomq.store.roundtrip import Address

MOST_NODES: Final = 100
"""How many addresses are kept: nodes of a cluster in containers may get new ones all the time."""

_NONE: Final[Mapping[int, Address]] = MappingProxyType({})


class SlotMap(dict[int, Address]):
    """The node of each slot that was redirected. Replaced rather than modified: threads share it.

    Empty for a server that is no cluster, and for one whose known slots all lost their node.
    """

    __slots__ = ("nodes",)

    def __init__(self, slots: Mapping[int, Address] = _NONE, nodes: Iterable[Address] = ()) -> None:
        """Begin with nothing."""
        super().__init__(slots)
        self.nodes = tuple(dict.fromkeys(nodes))[:MOST_NODES]
        """All nodes ever named, in the order to ask them: the last one named first."""

    def with_moved(self, moved: Mapping[int, Address]) -> SlotMap:
        """Return the map after the redirections *moved*."""
        return SlotMap({**self, **moved}, (*moved.values(), *self.nodes))

    def without(self, node: Address | None) -> SlotMap:
        """Return the map after *node* could not be reached: it is asked last."""
        if node not in self.nodes:
            return self
        others = (each for each in self.nodes if each != node)
        slots = {slot: at for slot, at in self.items() if at != node}
        return SlotMap(slots, (*others, node))
