"""A sentinel that says what a test tells it to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import hiredis

from tests.servers.run import Server

NAME = "mymaster"


class FakeSentinel:
    """Names one server as the primary `NAME`. It never looks at that server."""

    def __init__(self, primary: Server | None = None) -> None:
        """Name *primary*; without one, know no primary."""
        self.primary = primary
        self.replaced_by: Server | None = None
        """The primary that it names from its second answer on, if any."""
        self.is_silent = False
        """Whether it accepts connections and replies to nothing."""
        self.asked = 0
        """How often it was asked for the primary."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        for thread in self._threads:
            thread.join()

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        """Refuse connections, and close those that are open."""
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _begin(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                self._begin(self._serve, client)
        except OSError:
            return

    def _serve(self, client: socket.socket) -> None:
        reader = hiredis.Reader()
        try:
            while data := client.recv(4096):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    if not self.is_silent:
                        client.sendall(self._reply(command))
        except OSError:
            return

    def _reply(self, command: list[bytes]) -> bytes:
        if command[0] != b"SENTINEL":
            return b"+OK\r\n"
        assert command[1] == b"GET-MASTER-ADDR-BY-NAME"
        self.asked += 1
        if self.primary is None or command[2] != NAME.encode():
            return b"*-1\r\n"
        port = str(self.primary.port).encode()
        self.primary = self.replaced_by or self.primary
        return b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port)


def url_of(*sentinels: FakeSentinel, name: str = NAME) -> str:
    """Return the URL of the primary that *sentinels* name."""
    return f"redis+sentinel://{','.join(each.address for each in sentinels)}/{name}"
