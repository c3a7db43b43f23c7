"""The process of `heartbeat.ProcessHeartbeat`: told what to renew on stdin, ends with it.

First a pickled `Lease`, then lines: ``+<id> <receipt>`` hold, ``-<id>`` let go.
"""

from __future__ import annotations

import pickle
import sys

from tambomq.rsmq.heartbeat import ThreadHeartbeat
from tambomq.rsmq.model import Message


def main() -> None:
    """Renew until the worker hangs up, which it does also by dying."""
    told = sys.stdin.buffer
    beat = ThreadHeartbeat(pickle.load(told))  # noqa: S301  (written by our own parent)
    for line in told:
        id, _, receipt = line[1:].decode().strip().partition(" ")
        message = Message(id, b"", int(receipt or 0), 0, 0)
        if line.startswith(b"+"):
            beat.hold((message,))
        else:
            beat.let_go((message,))
    beat.close()


if __name__ == "__main__":
    main()
