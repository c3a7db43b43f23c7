"""The process of `heartbeat.ProcessHeartbeat`: told what to renew on stdin, ends with it.

On stdin first, pickled, the `Lease` and what is held already. Then lines of JSON: an
object of receipts by id to hold, a list of ids to let go. On stdout an object for
each time some were lost.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress

from tambomq.store.heartbeat import ThreadHeartbeat, message, messages


class _Reporting(ThreadHeartbeat):
    """Tells the worker what is lost, and with which receipt: it may hold the id anew by now."""

    def _tell_lost(self, lost: dict[str, str]) -> None:
        # A worker that listens no more is gone, or about to go: stdin will tell.
        with suppress(OSError):
            os.write(sys.stdout.fileno(), message(lost))


def main() -> None:
    """Renew until the worker hangs up, which it does also by dying."""
    inbox = sys.stdin.buffer
    lease, held = pickle.load(inbox)  # noqa: S301  (written by our own parent)
    beat = _Reporting(lease, held=held)
    for told in messages(inbox):
        if isinstance(told, dict):
            beat.hold(told)
        else:
            beat.let_go(told)
    beat.close()


if __name__ == "__main__":
    main()
