"""A primary with replicas on loopback, watched by sentinels that promote a replica."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.servers import binaries
from tests.servers.poll import eventually
from tests.servers.run import Server
from tests.servers.tls import Certificate

NAME = "mymaster"
_DOWN_AFTER_MS = 500
_READY_WITHIN_S = 20.0
_PROMOTED_WITHIN_S = 20.0
_DATA = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
_TLS = ("--tls-replication", "yes")
# A sentinel looks at its servers every ten seconds: too rare for tests. But it promotes no replica
# whose INFO is older than five ping periods, and asks for it once a second while the primary is
# down. If the periods are too short it finds none, and waits for twice the failover timeout.
_PERIODS = ("info-period", 200, "publish-period", 200, "ask-period", 100, "ping-period", 300)


class Sentinels:
    """A primary with *replicas*, and *sentinels* of which a majority decides.

    *password* is that of the data servers, *sentinel_password* that of the sentinels. *args* are
    more options of the data servers. With a *certificate* all of them speak TLS only, and are
    Debian's Redis, which can.
    """

    def __init__(
        self,
        *args: str,
        replicas: int = 1,
        sentinels: int = 1,
        password: str = "",
        sentinel_password: str = "",
        certificate: Certificate | None = None,
    ) -> None:
        self.servers: list[Server] = []
        """The data servers, in the order of their start; the first one began as the primary."""
        self.sentinels: list[Server] = []
        self.password, self.sentinel_password = password, sentinel_password
        self.certificate = certificate
        self._binary = (certificate and binaries.debian_redis()) or binaries.valkey()
        self._args, self._counts = args, (replicas, sentinels)
        self._left = ("", 0)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            self._start(made)
            self._open = made.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def url(self) -> str:
        """The URL of the primary, whichever it is."""
        login = f":{self.password}@" if self.password else ""
        nodes = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        options = [f"sentinel_password={self.sentinel_password}"] if self.sentinel_password else []
        options += [f"ca={self.certificate.cert}"] if self.certificate else []
        scheme = "rediss+sentinel" if self.certificate else "redis+sentinel"
        option = f"?{'&'.join(options)}" if options else ""
        return f"{scheme}://{login}{nodes}/{NAME}{option}"

    @property
    def primary(self) -> Server:
        """The server that the sentinels call the primary."""
        _, port = self._address()
        return next(each for each in self.servers if each.port == port)

    @property
    def replicas(self) -> list[Server]:
        """All other data servers, also those that do not run."""
        primary = self.primary
        return [each for each in self.servers if each is not primary]

    def failover(self) -> Server:
        """Fail over while all is well; return the new primary."""
        self._left = self._address()
        eventually(self._start_failover, within_s=_PROMOTED_WITHIN_S)
        return self.wait_promoted()

    def kill_primary(self) -> Server:
        """End the primary as a crash would (SIGKILL); return it."""
        primary = self._leave()
        primary.kill()
        return primary

    def freeze_primary(self) -> Server:
        """Freeze the primary (SIGSTOP); return it. `resume` ends that."""
        primary = self._leave()
        os.kill(primary.pid, signal.SIGSTOP)
        return primary

    def resume(self, server: Server) -> None:
        """Resume a frozen server (SIGCONT)."""
        os.kill(server.pid, signal.SIGCONT)

    def rejoin(self, server: Server) -> None:
        """Start an ended server again, as a replica of the primary that the sentinels name.

        That is what a supervisor does that asks them first. A server that starts as a primary is
        made a replica too, but only after it has been looked at for four publish periods.
        """
        primary = self.primary
        server.args = (*self._own_args, "--replicaof", f"127.0.0.1 {primary.port}")
        server.restart()

    def wait_promoted(self) -> Server:
        """Wait until a server other than the one that was left takes writes; return it."""
        eventually(self._is_promoted, within_s=_PROMOTED_WITHIN_S)
        return self.primary

    def wait_whole(self) -> None:
        """Wait until all other servers are replicas that have the primary's data."""
        eventually(self._is_whole, within_s=_READY_WITHIN_S)

    def ask(self, server: Server, *command: str | int) -> Any:
        """Send *command* to one data server or sentinel."""
        with self._client(server) as client:
            return client.execute_command(*command)

    def _client(self, server: Server) -> redis.Redis:
        password = self.sentinel_password if server in self.sentinels else self.password
        return redis.Redis(
            port=server.port,
            password=password or None,
            protocol=2,
            decode_responses=True,
            ssl=self.certificate is not None,
            ssl_ca_certs=str(self.certificate.cert) if self.certificate else None,
        )

    def _start(self, made: ExitStack) -> None:
        replicas, sentinels = self._counts
        for _ in range(1 + replicas):
            server = Server(
                self._binary,
                *self._own_args,
                password=self.password,
                certificate=self.certificate,
            )
            self.servers.append(made.enter_context(server))
        first = self.servers[0]
        for replica in self.servers[1:]:
            self.ask(replica, "REPLICAOF", "127.0.0.1", first.port)
        eventually(lambda: self._count(first) == replicas, within_s=_READY_WITHIN_S)
        for _ in range(sentinels):
            watcher = _Sentinel(
                self._binary,
                first.port,
                sentinels // 2 + 1,
                self.password,
                self.sentinel_password,
                self.certificate,
            )
            self.sentinels.append(made.enter_context(watcher))
            self.ask(watcher, "SENTINEL", "DEBUG", *_PERIODS)
        eventually(self.is_watched, within_s=_READY_WITHIN_S)

    @property
    def _own_args(self) -> tuple[str, ...]:
        """The options that all data servers have."""
        login = ("--masterauth", self.password) if self.password else ()
        return (*_DATA, *login, *(_TLS if self.certificate else ()), *self._args)

    def _count(self, server: Server) -> int:
        """How many replicas of *server* have all its data."""
        role = self.ask(server, "ROLE")
        return len(role[2]) if role[0] == "master" else -1

    def _is_whole(self) -> bool:
        try:
            return self._count(self.primary) == self._counts[0] and self.is_watched()
        except redis.ConnectionError:
            return False

    def is_watched(self) -> bool:
        """Whether the sentinels see each other, and all servers."""
        replicas, sentinels = self._counts
        return all(
            len(self._usable("REPLICAS", each)) == replicas
            and len(self._usable("SENTINELS", each)) == sentinels - 1
            for each in self.sentinels
        )

    def _usable(self, what: str, sentinel: Server) -> list[Any]:
        rows = self.ask(sentinel, "SENTINEL", what, NAME)
        facts = [dict(zip(row[::2], row[1::2], strict=True)) for row in rows]
        # A replica whose INFO has not been read yet has no link to its primary.
        return [each for each in facts if each.get("master-link-status", "ok") == "ok"]

    def _address(self) -> tuple[str, int]:
        host, port = self.ask(self.sentinels[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return str(host), int(port)

    def _leave(self) -> Server:
        self._left = self._address()
        return self.primary

    def _start_failover(self) -> bool:
        try:
            return bool(self.ask(self.sentinels[0], "SENTINEL", "FAILOVER", NAME))
        except redis.ResponseError as error:
            # After another failover its replicas are known a moment later.
            raise AssertionError(str(error)) from error

    def _is_promoted(self) -> bool:
        address = self._address()
        try:
            return address != self._left and self.ask(self.primary, "ROLE")[0] == "master"
        except redis.ConnectionError:
            return False


class _Sentinel(Server):
    """One sentinel: the server's program in another mode, with a file that it rewrites."""

    def __init__(
        self,
        binary: Path,
        port: int,
        quorum: int,
        password: str,
        own_password: str,
        certificate: Certificate | None,
    ) -> None:
        super().__init__(binary, password=own_password, certificate=certificate)
        self._lines = [
            f"sentinel monitor {NAME} 127.0.0.1 {port} {quorum}",
            f"sentinel down-after-milliseconds {NAME} {_DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 3000",
        ]
        if password:
            self._lines.append(f"sentinel auth-pass {NAME} {password}")
        if own_password:
            self._lines += [f"requirepass {own_password}", f"sentinel sentinel-pass {own_password}"]

    def _options(self, port: int) -> list[str]:
        path = Path(self.dir) / "sentinel.conf"
        if not path.exists():
            path.write_text("\n".join(self._lines) + "\n")
        options = ["--bind", "127.0.0.1", "--dir", str(self.dir)]
        if self.certificate:
            options += ["--port", "0", "--tls-port", str(port)]
            options += [*_TLS, *self.certificate.options]
        else:
            options += ["--port", str(port)]
        return [str(path), "--sentinel", *options, "--unixsocket", str(self.socket)]
