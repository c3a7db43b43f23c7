"""Going through what Redis tells by cursors; of all keys of a cluster, on each of its masters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from tambomq.errors import StoreError, StoreUnavailable
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tambomq.store.trip import Address

T = TypeVar("T")

_START: Final = b"0"


def pages(store: Store, page: Callable[[bytes], Call[tuple[bytes, list[T]]]]) -> Iterator[list[T]]:
    """Yield what *page* finds from a cursor on, on every master."""
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
    """Yield what *page* finds from a cursor on, until there is no more."""
    cursor = _START
    while True:
        cursor, found = store.run(page(cursor))
        yield found
        if cursor == _START:
            return


def _nodes(store: Store) -> list[Address]:
    """Return where the masters of a cluster are; none where there is no cluster."""
    try:
        found = store.run(Call("CLUSTER SLOTS", (), (), _addresses, repeatable=True))
    except StoreUnavailable:
        raise
    except StoreError:
        # It is no cluster, or does not say whether it is: then it is asked as it is.
        return []
    return [(host or store.endpoint.nodes[0][0], port) for host, port in found]


def _addresses(reply: list[Any]) -> list[Address]:
    """Return where the masters are, each once; a host that a node leaves out is its own."""
    found = ((row[2][0] or b"", row[2][1]) for row in reply)
    return list(dict.fromkeys((host.decode(), port) for host, port in found))
