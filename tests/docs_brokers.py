"""A `tambo serve` on free ports, for the brokers that a page of the documentation talks to.

A page names the default ports. They are replaced by the real ones before a block runs, and put back
in its output before the comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serve.processes import serving
from tests.servers import Server

_PORTS = {"gomq": 10001, "kqueue": 8000, "http": 8090}
_SPEAKS_WITH = re.compile(
    r"127\.0\.0\.1(?::|/|\", )(?:10001|8000|8090)\b|tambo (?:gomq|kqueue|demo)\b"
)


def are_needed(text: str) -> bool:
    """Whether a page that says *text* needs brokers."""
    return _SPEAKS_WITH.search(text) is not None


class PageBrokers:
    """The addresses of a page's brokers."""

    def __init__(self, ports: dict[str, int], redis: str) -> None:
        self._ports, self._redis = ports, redis

    def real(self, text: str) -> str:
        """Return *text* with the real ports in place of the default ones."""
        for name, shown in _PORTS.items():
            port = self._ports[name]
            text = re.sub(rf'(127\.0\.0\.1(?::|/|", )){shown}\b', rf"\g<1>{port}", text)
        for name in ("gomq", "kqueue"):
            text = text.replace(f"tambo {name} ", f"tambo {name} {self._flags(name)} ")
        return text.replace("tambo demo", f"tambo demo {self._flags('demo')}")

    def shown(self, text: str) -> str:
        """Return *text* with the default ports in place of the real ones."""
        for name, shown in _PORTS.items():
            text = text.replace(f"127.0.0.1:{self._ports[name]}", f"127.0.0.1:{shown}")
        return text

    def _flags(self, command: str) -> str:
        at = {name: f"127.0.0.1:{port}" for name, port in self._ports.items()}
        if command == "demo":
            brokers = f"--gomq-address {at['gomq']} --kqueue-address {at['kqueue']}"
            return f"--redis-url {self._redis} {brokers}"
        return f"--address {at[command]}"


@contextmanager
def opened(server: Server, folder: Path) -> Iterator[PageBrokers]:
    """Yield brokers that use *server*; they stop when the block ends."""
    with serving(folder, "--redis-url", server.url) as running:
        found = running.ready["endpoints"]
        ports = {name: int(found[name]["address"].rpartition(":")[2]) for name in _PORTS}
        yield PageBrokers(ports, server.url)
