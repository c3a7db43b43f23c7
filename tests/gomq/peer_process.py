"""A GOMQ consumer in a process of its own, for tests that kill it. Run by ``python -m``.

Subscribes, observes once, prints how many records came, and then neither speaks nor ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tambomq.gomq.client import GomqClient


def main(address: str, key: str, consumer: str, peer: str) -> None:
    client = GomqClient(address, peer=peer)
    client.subscribe(key, consumer)
    print(len(client.observe(consumer)), flush=True)  # noqa: T201  (what the test waits for)
    sys.stdin.read()


@contextmanager
def peer_process(
    address: str, key: str, consumer: str, peer: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A peer that holds what it observed; it is gone when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, address, key, consumer, peer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main(*sys.argv[1:])
