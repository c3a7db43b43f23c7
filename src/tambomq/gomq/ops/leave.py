"""Unsubscribing and disconnecting, and settling what the departed peers had not received.

A departing peer leaves in one step: its dedicated queue gets no more messages, and is set aside.
The messages in it are then settled in any number of bounded steps: those that no other peer has or
will get go back to the main queue. Any process that finds an unsettled key continues with it, so it
does not matter which process began, or whether several do so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from tambomq.gomq import keys
from tambomq.gomq.model import Options
from tambomq.gomq.ops.messages import last_action_ttl_s, names
from tambomq.store.call import Call, Plan, load_script, results

STEPS: Final = 500
"""Messages, peers or keys handled by one script, approximately."""
_PIPELINED: Final = 8
"""Steps that are pipelined in one round trip, once there is known to be more to do."""
_PAGES_WITHOUT_PROGRESS: Final = 32
"""Pages without progress before the steps are enlarged: enough for a peer to leave 1,000 keys
twice if nothing is published meanwhile."""

_UNSUBSCRIBE = load_script("tambomq.gomq.ops", "unsubscribe")
_SETTLE = load_script("tambomq.gomq.ops", "settle")
_REAP = load_script("tambomq.gomq.ops", "reap")
_ARRIVALS = load_script("tambomq.gomq.ops", "arrivals")

_DONE, _MORE, _NEEDS_RECEIVERS = range(3)
Recorded: TypeAlias = Callable[[Call[Any]], Call[Any]]


class ReapResult(msgspec.Struct, frozen=True):
    """The result of disconnecting silent peers."""

    peers: int
    returned: int
    """Messages that no other peer has or will get: they are in their main queue again."""


class ReapPage(msgspec.Struct, frozen=True):
    """The result for one page of a consumer's peers."""

    peers: int
    cursor: bytes
    """The next page; ``0`` after the last, ``again`` if this page needs another call."""
    keys: list[str]
    """Keys to settle."""


class ReceiverState(msgspec.Struct, frozen=True):
    """The receivers of a key, as far as settling depends on them. Empty: not looked up yet."""

    last_set_aside: int = 0
    """The number of the last queue that had been set aside when the receivers were looked up."""
    first_joined: int | None = None
    """Messages that had been dispatched when the earliest of the receivers subscribed."""
    min_observed: int | None = None
    """All receivers have observed the messages before this number."""


def unsubscribe(
    key: str, consumer: str, *, peer: str = "", acked: str = "", recorded: Recorded | None = None
) -> Plan[int | None]:
    """Unsubscribe *consumer* from *key*; `None` if it was not subscribed.

    Messages that only its peers were to receive go back to the main queue; returns how many.
    *acked* is the last batch that *peer* received. *recorded* returns the call with journal hooks.
    """
    call = unsubscribe_call(key, consumer, peer, acked)
    was_subscribed = results((yield (recorded(call) if recorded else call,)))[0]
    return (yield from settle(key)) if was_subscribed else None


def unsubscribe_call(key: str, consumer: str, peer: str, acked: str) -> Call[bool]:
    """Stop dispatching *key* to *consumer*; false if it was not subscribed.

    The key must be settled afterwards.
    """
    redis_keys = (
        *(keys.queue(key), keys.consumers(key), keys.tally(key)),
        *(keys.subscriptions(consumer), keys.peers(consumer), keys.SUBSCRIBED_KEYS),
        *(keys.unsubscribed(key), keys.UNSETTLED, keys.ASIDE, keys.handed(consumer, peer)),
    )
    args = (key, consumer, acked, keys.LEAVERS, keys.channel(consumer))
    return Call(_UNSUBSCRIBE, redis_keys, args, decode=lambda reply: reply > 0, repeatable=True)


def reap(consumer: str, options: Options) -> Plan[ReapResult]:
    """Disconnect the peers of *consumer* that have been silent for too long."""
    page = results((yield (reap_page(consumer, options),)))[0]
    return (yield from reap_on(consumer, options, page))


def reap_on(consumer: str, options: Options, page: ReapPage) -> Plan[ReapResult]:
    """Continue a `reap` after its first *page*."""
    cursor, peers, due = page.cursor, page.peers, dict.fromkeys(page.keys)
    current, idle_pages = b"0", 0
    while cursor != b"0":
        current = current if cursor == b"again" else cursor
        # Enlarge the steps without progress: a fast publisher must not keep a peer connected.
        steps = STEPS * (1 + idle_pages // _PAGES_WITHOUT_PROGRESS)
        page = results((yield (reap_page(consumer, options, current, steps),)))[0]
        cursor, peers = page.cursor, peers + page.peers
        idle_pages = 0 if page.peers else idle_pages + 1
        due |= dict.fromkeys(page.keys)
    return ReapResult(peers, (yield from settle_all(due)))


def reap_page(
    consumer: str, options: Options, cursor: bytes = b"0", steps: int | None = None
) -> Call[ReapPage]:
    """Disconnect the silent peers of one page.

    A peer with many keys leaves some of them now, and the others in the calls that follow.
    """
    names_of = (keys.QUEUE, keys.MESSAGES, keys.TALLY, keys.LEAVING, keys.LEFT)
    return Call(
        _REAP,
        (keys.subscriptions(consumer), keys.peers(consumer), keys.UNSETTLED, keys.ASIDE),
        (
            *(consumer, options.peer_timeout_s, last_action_ttl_s(options), cursor, steps or STEPS),
            *(*names_of, keys.LASTACTION, keys.HANDED),
        ),
        decode=lambda reply: ReapPage(reply[0], reply[1], names(reply[2])),
        repeatable=True,
    )


def unsettled(cursor: bytes = b"0") -> Call[tuple[bytes, list[str]]]:
    """Return the next cursor (``0`` after the last page), and some keys that are not settled."""
    return Call(
        "SSCAN",
        (keys.UNSETTLED,),
        (cursor, "COUNT", STEPS),
        decode=lambda reply: (reply[0], names(reply[1])),
        repeatable=True,
    )


def settle_all(due: Iterable[str]) -> Plan[int]:
    """Settle each key; return how many messages were requeued."""
    returned = 0
    for key in due:
        returned += yield from settle(key)
    return returned


def settle(key: str) -> Plan[int]:
    """Requeue messages of departed peers that no other peer has; return how many."""
    returned, receivers, count = 0, ReceiverState(), 1
    while True:
        replies: list[tuple[int, int]] = results((yield [settle_some(key, receivers)] * count))
        returned += sum(back for _, back in replies)
        state, count = replies[-1][0], _PIPELINED
        if state == _DONE:
            return returned
        if state == _NEEDS_RECEIVERS:
            receivers, count = (yield from look_up_receivers(key)), 1


def settle_some(key: str, receivers: ReceiverState) -> Call[tuple[int, int]]:
    """Settle a key by one step; return what to do next, and how many messages were requeued.

    With empty *receivers* only the part that does not depend on them is done.
    """
    redis_keys = (
        *(keys.queue(key), keys.consumers(key), keys.tally(key), keys.leaving(key)),
        *(keys.unsubscribed(key), keys.UNSETTLED, keys.ASIDE),
    )
    args = (
        *(key, keys.LEFT, keys.LEAVERS, keys.MESSAGES, keys.HANDED),
        *(receivers.last_set_aside, _optional(receivers.first_joined)),
        *(_optional(receivers.min_observed), STEPS),
    )
    return Call(_SETTLE, redis_keys, args, decode=tuple, repeatable=True)


def look_up_receivers(key: str) -> Plan[ReceiverState]:
    """Return the state of all receivers of *key*.

    A peer that joins meanwhile has no messages of queues that were set aside before. One that
    leaves meanwhile is counted; its own queue gets a higher number and is settled later.
    """
    last_set_aside: int | None = None
    first_joined: int | None = None
    min_observed: int | None = None
    todo = [("", b"0")]
    while todo:
        pages = results((yield [_arrivals(key, *each) for each in todo[:_PIPELINED]]))
        done, todo = todo[:_PIPELINED], todo[_PIPELINED:]
        for (consumer, _), (last, cursor, since, low, rest) in zip(done, pages, strict=True):
            last_set_aside = last if last_set_aside is None else last_set_aside
            if since is not None:
                first_joined = since if first_joined is None else min(first_joined, since)
            min_observed = low if min_observed is None else min(min_observed, low)
            todo += [(owner, b"0") for owner in rest]
            if cursor != b"0":
                todo.append((consumer, cursor))
    return ReceiverState(last_set_aside or 0, first_joined, min_observed)


def _arrivals(key: str, consumer: str, cursor: bytes) -> Call[tuple[Any, ...]]:
    redis_keys = (keys.consumers(key), keys.tally(key), keys.ASIDE)
    args = (consumer, cursor, keys.PEERS, keys.lists(key), STEPS)
    return Call(_ARRIVALS, redis_keys, args, decode=_arrivals_page, repeatable=True)


def _arrivals_page(reply: list[Any]) -> tuple[Any, ...]:
    last_set_aside, cursor, since, low, rest = reply
    return int(last_set_aside), cursor, int(since) if since else None, int(low), rest


def _optional(number: int | None) -> int | str:
    return "" if number is None else number
