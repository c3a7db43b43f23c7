"""The audit: checks the invariants of all protocols in Redis and repairs violations on request.

The rules of each protocol are in its ``bulk/audit.py``. A check changes nothing, and a repair first
checks again, so it does nothing to a queue that is sound by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from tambomq.bulk.audit import Finding, Rule
from tambomq.chasqui.bulk import audit as chasqui_ops
from tambomq.errors import InvalidValue
from tambomq.gomq.bulk import audit as gomq_ops
from tambomq.journal import audit as journal_ops
from tambomq.rsmq.bulk import audit as rsmq_ops
from tambomq.rsmq.keys import NAMESPACE, Keys, is_queue
from tambomq.rsmq.ops import queues as queue_ops
from tambomq.spark.core.cursors import pages
from tambomq.store.call import Call
from tambomq.store.sync import Store

RULES: Final[Mapping[str, tuple[Rule, ...]]] = {
    "rsmq": rsmq_ops.RULES,
    "chasqui": chasqui_ops.RULES,
    "gomq": gomq_ops.RULES,
    "journal": journal_ops.RULES,
}
PARTS: Final = tuple(RULES)


class Audit:
    """Checks the queues of one server."""

    def __init__(self, store: Store, *, ns: str = NAMESPACE) -> None:
        self._store, self._rsmq = store, Keys(ns)

    def look(self, parts: Iterable[str] = PARTS) -> Iterator[tuple[str, list[Finding]]]:
        """Yield each checked queue, as ``protocol:name``, with its violations."""
        for part in parts:
            if part not in _LOOKS:
                raise InvalidValue("protocol", part, f"one of {', '.join(PARTS)}")
        for part in parts:
            for name, wrong in _LOOKS[part](self):
                yield f"{part}:{name}", wrong

    def mend(self, finding: Finding) -> bool:
        """Repair a finding whose rule has a repair; false if nothing was wrong any more."""
        protocol = finding.rule.name.partition(".")[0]
        if protocol == "rsmq":
            return self._store.run(rsmq_ops.mend(self._rsmq, finding))
        if protocol == "chasqui":
            return self._store.run(chasqui_ops.mend(finding))
        return self._store.run(gomq_ops.mend(finding))

    def look_at_rsmq(self) -> Iterator[tuple[str, list[Finding]]]:
        """Check RSMQ's queues, also those that are not in the list of queues."""
        listed = self._store.run(queue_ops.list_queues(self._rsmq))
        pages = self._pages(lambda cursor: rsmq_ops.candidates(self._rsmq, cursor))
        for name in sorted({*filter(is_queue, listed), *pages}):
            yield name, self._store.follow(rsmq_ops.queue(self._rsmq, name))

    def look_at_chasqui(self) -> Iterator[tuple[str, list[Finding]]]:
        """Check ChasquiMQ's queues."""
        queues: dict[str, tuple[set[str], set[str]]] = {}
        for name, kind, rest in self._pages(chasqui_ops.space):
            ids, specs = queues.setdefault(name, (set(), set()))
            if kind == "didx":
                ids.add(rest)
            elif kind == "repeat" and rest.startswith("spec:"):
                specs.add(rest.removeprefix("spec:"))
        for name, (ids, specs) in sorted(queues.items()):
            found = self._store.follow(chasqui_ops.queue(name))
            found += self._store.follow(chasqui_ops.of_ids(name, sorted(ids)))
            found += self._store.follow(chasqui_ops.of_specs(name, sorted(specs)))
            found += self._store.follow(chasqui_ops.of_locks(name))
            yield name, found

    def look_at_gomq(self) -> Iterator[tuple[str, list[Finding]]]:
        """Check all GOMQ keys at once: the rules are about relations between them."""
        space = self._store.follow(gomq_ops.space())
        found = self._store.follow(gomq_ops.everything(space))
        by_queue: dict[str, list[Finding]] = {key: [] for key in space.queues + space.consumers}
        for each in found:
            by_queue.setdefault(each.queue, []).append(each)
        yield from sorted(by_queue.items())

    def look_at_journals(self) -> Iterator[tuple[str, list[Finding]]]:
        """Check the journals of all protocols."""
        for key in sorted(set(self._pages(journal_ops.keys_like_journals))):
            yield key, self._store.follow(journal_ops.journal(key))

    def _pages(self, page: Callable[[bytes], Call[tuple[bytes, list[Any]]]]) -> Iterator[Any]:
        for found in pages(self._store, page):
            yield from found


_LOOKS: Final = {
    "rsmq": Audit.look_at_rsmq,
    "chasqui": Audit.look_at_chasqui,
    "gomq": Audit.look_at_gomq,
    "journal": Audit.look_at_journals,
}
