"""Gives back the jobs of worker processes that have ended; a process of its own, with a short life.

The supervisor starts it: the only one that knows of the end at once, and that speaks no protocol.
On stdin it gets the leases, as `pack` has made them, one in each line; on stdout it prints a
`ReleaseResult` for each.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import sys
from typing import TYPE_CHECKING

import msgspec

from tambomq.errors import StoreError, TamboError
from tambomq.failures import text_of
from tambomq.store.aio import AsyncStore
from tambomq.work.messages import ReleaseResult

if TYPE_CHECKING:
    from tambomq.chasqui.worker.in_flight import EntryLease


def pack(lease: EntryLease) -> str | None:
    """Return *lease* as a line; `None` if another process could not log in with it."""
    if lease.endpoint.credentials is not None:
        return None
    return base64.b64encode(pickle.dumps(lease)).decode()


def main() -> None:
    """Release what stdin names."""
    leases = [pickle.loads(base64.b64decode(line)) for line in sys.stdin]  # noqa: S301  (by `pack`)
    asyncio.run(_release_all(leases))


async def _release_all(leases: list[EntryLease]) -> None:
    await asyncio.gather(*map(_release, leases))


async def _release(lease: EntryLease) -> None:
    # Later than that there is nothing to gain: the lease has run out by itself.
    store = AsyncStore(lease.endpoint, patience_s=lease.idle_ms / 1000)
    try:
        result = ReleaseResult(lease.queue, await store.follow(lease.release()))
    except TamboError as error:
        # The queue may have been deleted meanwhile, with its group: then there are no jobs.
        is_gone = isinstance(error, StoreError) and error.kind in ("NOGROUP", "NOKEY")
        result = ReleaseResult(lease.queue, 0, "" if is_gone else text_of(error))
    finally:
        await store.close()
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
