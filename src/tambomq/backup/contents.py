"""Counts what a server holds that has loaded an RDB file: keys, and queues of each protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from tambomq.backup.model import BackupCounts, ProtocolCount
from tambomq.chasqui.bulk import sample as chasqui_sample
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq.bulk import sample as gomq_sample
from tambomq.gomq.bulk import scan as gomq_scan
from tambomq.rsmq.bulk import scan as rsmq_scan
from tambomq.rsmq.keys import ANY_NAMESPACE, is_queue, namespace_of
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.call import Call
from tambomq.store.sync import Store

_PAGE: Final = 1000
_QUEUES_AT_ONCE: Final = 200

Page = tuple[bytes, Any]


def count(store: Store) -> BackupCounts:
    """Count what *store* has loaded. Raises `StoreUnavailable`.

    Keys of all databases, queues of the one that *store* selects. What is not of the type that its
    protocol stores counts as empty.
    """
    protocols = {"rsmq": _rsmq(store), "chasqui": _chasqui(store), "gomq": _gomq(store)}
    loaded, expired = store.run(_loaded())
    return BackupCounts(loaded + expired, expired, protocols)


def _loaded() -> Call[tuple[int, int]]:
    """Return how many keys of the RDB file were loaded, and how many had expired before."""

    def numbers(reply: bytes) -> tuple[int, int]:
        fields = dict(line.split(b":", 1) for line in reply.splitlines() if b":" in line)
        return int(fields[b"rdb_last_load_keys_loaded"]), int(fields[b"rdb_last_load_keys_expired"])

    return Call("INFO", ("persistence",), (), numbers, repeatable=True)


def _rsmq(store: Store) -> ProtocolCount:
    # A queue's dead letters are a queue of their own, and counted there.
    queues = messages = 0
    for found in _names(store, _rsmq_sets):
        keys = RsmqKeys(namespace_of(found))
        names = {
            queue
            for name in _names(store, partial(rsmq_scan.names, keys))
            if is_queue(queue := name.decode("utf-8", "replace"))
        }
        queues += len(names)
        depths = [rsmq_scan.count(keys, name, "-inf", "+inf") for name in names]
        messages += sum(_values(store, depths))
    return ProtocolCount(queues, messages)


def _chasqui(store: Store) -> ProtocolCount:
    names = set(_names(store, chasqui_sample.names))
    samples = _values(store, [chasqui_sample.sample(ChasquiKeys(name)) for name in names])
    return ProtocolCount(len(names), sum(s.length + s.delayed + s.dead for s in samples))


def _gomq(store: Store) -> ProtocolCount:
    names = {*_names(store, gomq_scan.subscribed), *_names(store, gomq_scan.queues)}
    undelivered = sum(_values(store, [gomq_sample.length(name) for name in names]))
    receivers = _values(store, [gomq_sample.receivers(name) for name in names])
    waiting = sum(row.waiting for each in receivers for row in each.rows)
    return ProtocolCount(len(names), undelivered + waiting)


def _names(store: Store, page: Callable[[bytes], Call[Page]]) -> Iterator[Any]:
    """Yield what all pages of a scan name; nothing of a key that is not what it should be."""
    cursor = b"0"
    while replies := list(_values(store, [page(cursor)])):
        cursor, names = replies[0]
        yield from names
        if cursor == b"0":
            return


def _values(store: Store, calls: Sequence[Call[Any]]) -> Iterator[Any]:
    """Yield the replies, without those of damaged keys."""
    for start in range(0, len(calls), _QUEUES_AT_ONCE):
        for outcome in store.outcomes(calls[start : start + _QUEUES_AT_ONCE]):
            if isinstance(outcome, StoreUnavailable):
                raise outcome
            if not isinstance(outcome, TamboError):
                yield outcome


def _rsmq_sets(cursor: bytes) -> Call[Page]:
    words = (cursor, "MATCH", ANY_NAMESPACE, "COUNT", _PAGE, "TYPE", "set")
    return Call("SCAN", (), words, _texts, repeatable=True)


def _texts(reply: Sequence[Any]) -> Page:
    cursor, found = reply
    # A namespace is printable text without spaces: other names are not RSMQ's.
    names = {name.decode("utf-8", "replace") for name in found}
    return cursor, {n for n in names if n.isprintable() and " " not in n and namespace_of(n)}
