"""Scans with Redis cursors (SCAN, SSCAN), on each master of a cluster where keys are scanned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.call import Call
from tambomq.store.roundtrip import Address
from tambomq.store.sync import Store

T = TypeVar("T")

_START: Final = b"0"


def pages(store: Store, page: Callable[[bytes], Call[tuple[bytes, list[T]]]]) -> Iterator[list[T]]:
    """Yield the pages of a scan on every master."""
    masters = [Store(replace(store.endpoint, nodes=(each,), path=None)) for each in _nodes(store)]
    try:
        for node in masters or [store]:
            yield from scanned(node, page)
    finally:
        for master in masters:
            master.close()


def scanned(
    store: Store, page: Callable[[bytes], Call[tuple[bytes, list[T]]]]
) -> Iterator[list[T]]:
    """Yield the pages of a scan on one server, until its end."""
    cursor = _START
    while True:
        cursor, found = store.run(page(cursor))
        yield found
        if cursor == _START:
            return


def _nodes(store: Store) -> list[Address]:
    """Return the addresses of a cluster's masters; none if it is no cluster."""
    try:
        found = store.run(Call("CLUSTER SLOTS", (), (), _addresses, repeatable=True))
    except StoreUnavailable:
        raise
    except StoreError:
        # Not a cluster, or CLUSTER is not permitted: scan the server itself.
        return []
    return [(host or store.endpoint.nodes[0][0], port) for host, port in found]


def _addresses(reply: list[Any]) -> list[Address]:
    """Return the masters' addresses, each once; an empty host stands for the node asked."""
    found = ((row[2][0] or b"", row[2][1]) for row in reply)
    return list(dict.fromkeys((host.decode(), port) for host, port in found))
