"""The name of a client, which every process draws for itself."""

from __future__ import annotations

import subprocess
import sys

FORKING = """
import os
from tambomq.gomq import AsyncGomqClient, GomqClient
clients = [GomqClient(), AsyncGomqClient(), GomqClient(peer="own")]
def show():
    names = [dict(client._config.metadata)["x-gomq-peer"] for client in clients]
    assert names == [client.peer for client in clients]
    print(*names, flush=True)
show()
if os.fork() == 0:
    show()
    os._exit(0)
os.wait()
"""


def test_a_client_in_a_forked_child_is_another_peer_unless_it_was_named() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, check=True, text=True
    )
    ours, theirs = map(str.split, ran.stdout.splitlines())
    assert ours[2] == theirs[2] == "own"
    assert len({*ours[:2], *theirs[:2]}) == 4
