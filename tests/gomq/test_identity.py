"""Who a client is: drawn by each process that has it."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import os
from tambomq.gomq import AsyncGomqClient, GomqClient
clients = [GomqClient(), AsyncGomqClient(), GomqClient(peer="own")]
def tell():
    words = [dict(client._line.words)["x-gomq-peer"] for client in clients]
    assert words == [client.peer for client in clients]
    print(*words, flush=True)
tell()
if os.fork() == 0:
    tell()
    os._exit(0)
os.wait()
"""


def test_a_client_in_a_forked_child_is_another_peer_unless_it_was_named() -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, check=True, text=True
    )
    ours, theirs = map(str.split, said.stdout.splitlines())
    assert ours[2] == theirs[2] == "own"
    assert len({*ours[:2], *theirs[:2]}) == 4
