"""A cluster of three nodes on loopback, without replicas."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import redis

from tests.servers import binaries
from tests.servers.poll import eventually
from tests.servers.run import Server

SLOTS = 16384
_OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
_FORMED_WITHIN_S = 20.0


class Cluster:
    """Three nodes that share the slots evenly, in order."""

    def __init__(self) -> None:
        self.nodes: list[Server] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            for _ in range(3):
                self.nodes.append(made.enter_context(Server(binaries.valkey(), *_OPTIONS)))
            self._form()
            self._open = made.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def ask(self, node: int, *command: str | int) -> Any:
        """Send *command* to one node and to no other."""
        with redis.Redis.from_url(self.nodes[node].url, decode_responses=True) as client:
            return client.execute_command(*command)

    def home(self, slot: int) -> int:
        """The node that a slot is on before any migration."""
        return min(slot * len(self.nodes) // SLOTS, len(self.nodes) - 1)

    def id(self, node: int) -> str:
        """The name that the nodes have for this one."""
        return str(self.ask(node, "CLUSTER", "MYID"))

    def _form(self) -> None:
        for node in range(len(self.nodes)):
            mine = [slot for slot in range(SLOTS) if self.home(slot) == node]
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", mine[0], mine[-1])
            if node:
                self.ask(0, "CLUSTER", "MEET", "127.0.0.1", self.nodes[node].port)
        eventually(self._is_formed, within_s=_FORMED_WITHIN_S)

    def _is_formed(self) -> bool:
        return all(
            f"cluster_slots_ok:{SLOTS}" in (info := self._info(node))
            and "cluster_state:ok" in info
            and "cluster_known_nodes:3" in info
            for node in range(len(self.nodes))
        )

    def _info(self, node: int) -> str:
        info = self.ask(node, "CLUSTER", "INFO")
        if isinstance(info, dict):
            return "\n".join(f"{field}:{value}" for field, value in info.items())
        return str(info)
