"""Journals of RSMQ queues.

A send, by any client, is recorded or not done. A receive, a deletion and a dead-lettering are done
in any case: entries that do not fit into a full journal are counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.rsmq.keys import NAMESPACE, check_queue


def journal_policy(ns: str, patterns: Iterable[str], bounds: JournalBounds) -> JournalPolicy | None:
    """Return the policy by which queues of *ns* that match have a journal; `None` without any."""
    found = JournalPolicy("rsmq", patterns, bounds, within=_within(ns))
    return found if found.patterns else None


def policy_for_queue(ns: str, queue: str, option: bool | JournalBounds) -> JournalPolicy | None:
    """Return the policy by which *queue* of *ns* has a journal, if *option* asks for one."""
    if option:
        check_queue(queue)
    return JournalPolicy.for_queue("rsmq", queue, option, within=_within(ns))


def journal_keys(ns: str, queue: str) -> JournalKeys:
    """Return the keys of the journal that a queue of *ns* has, or would have."""
    return JournalKeys("rsmq", _within(ns) + queue)


def _within(ns: str) -> str:
    """Return the prefix that tells namespaces apart; the default namespace has none."""
    return "" if ns == NAMESPACE else f"{ns}:"
