"""Durable writes: a task waits once, after its last chunk, until all its rows are durable.

The exchange that waits also reads the tokens of the chunks, which their scripts stored together
with the rows. So what is confirmed holds for the server that has the rows: one that took over
without them lacks the tokens, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tambomq.errors import NotDurable
from tambomq.spark.core.options import SourceOptions
from tambomq.store.call import Call
from tambomq.store.durability.level import MEMORY, RULE, TIMEOUT_S, Durability, durability
from tambomq.store.durability.sync import DurableStore
from tambomq.store.sync import Store

_LEVEL, _TIMEOUT = "durable", "durableTimeoutSeconds"
DURABLE: Final = (_LEVEL, _TIMEOUT)
_MAX_TIMEOUT_S: Final = 3600
_PAGE: Final = 1000
_AGAIN: Final = "this task fails, and its retry writes no row twice"
_GONE: Final = "the server was replaced by one that lacks them (a failover)"


def durability_of(options: SourceOptions) -> Durability | None:
    """Return how durable a write must be when it is done; `None` for memory."""
    level = options.text(_LEVEL, MEMORY)
    limit_s = options.number(_TIMEOUT, int(TIMEOUT_S), max_value=_MAX_TIMEOUT_S)
    try:
        return durability(level, limit_s)
    except ValueError:
        raise options.wrong(_LEVEL, RULE, level) from None


def check(store: Store, level: Durability) -> None:
    """Raise `DurabilityUnsupported` if the server of *store* cannot confirm *level*."""
    durable = DurableStore(store, level)
    try:
        durable.check()
    finally:
        durable.close()


def confirm(store: Store, level: Durability, written: Mapping[str, Sequence[str]]) -> None:
    """Wait until all chunks are durable whose tokens are *written* in these fences.

    Raises `NotDurable`.
    """
    calls = [_known(fence, page) for fence, tokens in written.items() for page in _pages(tokens)]
    if not calls:
        return
    durable = DurableStore(store, level)
    try:
        known = durable.run_all(calls)
    except NotDurable as error:
        copies = {"acknowledged": error.acknowledged, "wanted": error.wanted}
        raise NotDurable(error.level, error.why, again=_AGAIN, **copies) from error
    finally:
        durable.close()
    if not all(known):
        raise NotDurable(level.level, _GONE, wanted=level.wanted, again=_AGAIN)


def _known(fence: str, tokens: Sequence[str]) -> Call[bool]:
    """Whether the fence has all *tokens*."""
    return Call("HMGET", (fence,), tuple(tokens), decode=_all_there, repeatable=True)


def _all_there(reply: Sequence[Any]) -> bool:
    return None not in reply


def _pages(tokens: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(tokens), _PAGE):
        yield tokens[first : first + _PAGE]
