"""What an eviction policy does to queues, for the log at a start and for ``tambo doctor``."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tambomq.alarms.ops import memory
from tambomq.errors import StoreError
from tambomq.store.aio import AsyncStore
from tambomq.store.endpoint import Endpoint

_log = logging.getLogger(__name__)

ADVICE: Final = "CONFIG SET maxmemory-policy noeviction, also in its configuration file"


class EvictionReport(msgspec.Struct, frozen=True):
    """What a server deletes when its memory is full, and what to do."""

    text: str
    is_fatal: bool
    """Whether messages are lost, and not only locks and results."""
    advice: str = ADVICE


def eviction_risk(policy: str, maxmemory: int) -> EvictionReport | None:
    """Return what *policy* puts at risk; `None` for ``noeviction``, and if it is not known."""
    if policy in ("", "noeviction"):
        return None
    if policy.startswith("allkeys"):
        when = "when memory is full" if maxmemory else "once it has a maxmemory"
        return EvictionReport(f"the policy {policy} deletes queues {when}", is_fatal=True)
    text = f"the policy {policy} deletes locks and results when memory is full"
    return EvictionReport(text, is_fatal=False)


async def warn_of_eviction(server: Endpoint) -> None:
    """Log a warning if *server* may delete messages, with what to do.

    Nothing is logged if it cannot be asked: an ACL may forbid INFO.
    """
    store = AsyncStore(server, patience_s=0)
    try:
        report = await store.run(memory())
    except StoreError as error:
        _log.debug("the eviction policy is not known: %s", error)
        return
    finally:
        await store.close()
    if risk := eviction_risk(report.policy, report.limit):
        _log.warning("%s: %s: %s", server, risk.text, risk.advice)
