"""A cluster of three nodes on loopback, with replicas of those that a test kills."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import redis

from tests.servers import binaries
from tests.servers.poll import eventually
from tests.servers.run import Server

SLOTS = 16384
_MASTERS = 3
_OPTIONS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
# Without these, copies begin seconds later, and a replica whose last news is old may not take over.
_REPLICATED = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", "1000"),
    *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
)
_FORMED_WITHIN_S = 20.0
_PROMOTED_WITHIN_S = 30.0
_ACKNOWLEDGED_MS = 60_000


class Cluster:
    """Three nodes that share the slots evenly, in order.

    Each of *replicated* has a replica, which takes over about two seconds after it was killed. The
    replicas follow in `nodes`, in this order.
    """

    def __init__(self, replicated: Sequence[int] = ()) -> None:
        self.nodes: list[Server] = []
        self._replicated = replicated
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            options = _REPLICATED if self._replicated else _OPTIONS
            for _ in range(_MASTERS + len(self._replicated)):
                self.nodes.append(made.enter_context(Server(binaries.valkey(), *options)))
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

    def url(self, *nodes: int) -> str:
        """The URL that names these nodes."""
        return "redis://" + ",".join(f"127.0.0.1:{self.nodes[node].port}" for node in nodes)

    def home(self, slot: int) -> int:
        """The node that a slot is on before any migration."""
        return min(slot * _MASTERS // SLOTS, _MASTERS - 1)

    def id(self, node: int) -> str:
        """The name that the nodes have for this one."""
        return str(self.ask(node, "CLUSTER", "MYID"))

    def master(self, home: int) -> int:
        """The node that has the slots of *home* now: itself, or its replica."""
        return next(node for node in self._pair(home) if self._role(node) == "master")

    def replicate(self, home: int, key: str) -> None:
        """Return when the replica has all that was written; *key*, in a slot of *home*, is set."""
        with redis.Redis.from_url(self.nodes[self.master(home)].url) as client:
            client.set(key, "1")
            acknowledged: Any = client.wait(1, _ACKNOWLEDGED_MS)
            assert acknowledged == 1

    def kill_master(self, home: int) -> int:
        """End the master of the slots of *home* as a crash would (SIGKILL); return which it was."""
        killed = self.master(home)
        self.nodes[killed].kill()
        return killed

    def swap(self, home: int) -> None:
        """Let master and replica of *home* swap roles while both run."""
        replica = next(node for node in self._pair(home) if node != self.master(home))
        self.ask(replica, "CLUSTER", "FAILOVER")
        eventually(lambda: self._role(replica) == "master", within_s=_PROMOTED_WITHIN_S)
        (former,) = set(self._pair(home)) - {replica}
        eventually(lambda: self._is_copy(former), within_s=_PROMOTED_WITHIN_S)

    def wait_promoted(self, home: int) -> int:
        """Wait until a replica has taken over, and all others know; return which."""
        eventually(lambda: self._is_promoted(home), within_s=_PROMOTED_WITHIN_S)
        return self.master(home)

    def restart(self, node: int) -> None:
        """Start a killed node again, and wait until it is a replica with all data."""
        self.nodes[node].restart()
        eventually(lambda: self._is_copy(node), within_s=_PROMOTED_WITHIN_S)
        eventually(self._is_formed, within_s=_FORMED_WITHIN_S)

    def _form(self) -> None:
        for node in range(_MASTERS):
            mine = [slot for slot in range(SLOTS) if self.home(slot) == node]
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", mine[0], mine[-1])
        for node in range(1, len(self.nodes)):
            self.ask(0, "CLUSTER", "MEET", "127.0.0.1", self.nodes[node].port)
        eventually(self._is_formed, within_s=_FORMED_WITHIN_S)
        for replica, home in enumerate(self._replicated, _MASTERS):
            self.ask(replica, "CLUSTER", "REPLICATE", self.id(home))
        for replica in range(_MASTERS, len(self.nodes)):
            eventually(lambda replica=replica: self._is_copy(replica), within_s=_FORMED_WITHIN_S)  # type: ignore[misc]

    def _is_promoted(self, home: int) -> bool:
        # Until the others miss the killed one, they say that all is well.
        is_master = any(self._role(node) == "master" for node in self._pair(home))
        return is_master and self._is_formed()

    def _is_formed(self) -> bool:
        """Whether all nodes that run agree that each slot has a node that runs."""
        return all(
            f"cluster_slots_ok:{SLOTS}" in (info := self._info(node))
            and "cluster_state:ok" in info
            and f"cluster_known_nodes:{len(self.nodes)}" in info
            for node, server in enumerate(self.nodes)
            if server.is_running
        )

    def _pair(self, home: int) -> tuple[int, int]:
        return home, _MASTERS + self._replicated.index(home)

    def _role(self, node: int) -> str:
        return str(self.ask(node, "ROLE")[0]) if self.nodes[node].is_running else ""

    def _is_copy(self, node: int) -> bool:
        role = self.ask(node, "ROLE")
        return bool(role[0] == "slave" and role[3] == "connected")

    def _info(self, node: int) -> str:
        info = self.ask(node, "CLUSTER", "INFO")
        if isinstance(info, dict):
            return "\n".join(f"{field}:{value}" for field, value in info.items())
        return str(info)
