"""The child process of `heartbeat.ProcessHeartbeat`. Ends when its stdin does.

On stdin first, pickled, the `Lease` and what is held already. Then lines of JSON: an
object of receipts by id to hold, a list of ids to release. On stdout an object for
each time some were lost.
"""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress

from tambomq.runtime.heartbeat import ThreadHeartbeat, message, messages


class _Reporting(ThreadHeartbeat):
    """Reports lost leases with their receipts: the worker may hold the id again by now."""

    def _report_lost(self, lost: dict[str, str]) -> None:
        # If the worker is gone, stdin ends too.
        with suppress(OSError):
            os.write(sys.stdout.fileno(), message(lost))


def main() -> None:
    """Renew until the worker closes the pipe, which also happens when it dies."""
    inbox = sys.stdin.buffer
    lease, held = pickle.load(inbox)  # noqa: S301  (written by our own parent)
    beat = _Reporting(lease, held=held)
    for request in messages(inbox):
        if isinstance(request, dict):
            beat.hold(request)
        else:
            beat.let_go(request)
    beat.close()


if __name__ == "__main__":
    main()
