"""How peers and consumers leave a key, as calls and plans nobody has made yet.

Whoever leaves is gone in one step: its dedicated queue gets nothing any more, and is set aside.
What was in it is settled in any number of steps, each of them bounded. Whoever finds a key that is
not settled goes on with it, so it does not matter who began, or whether several do so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import msgspec

from tambomq.gomq import keys
from tambomq.gomq.model import Options
from tambomq.gomq.ops import keep_s, names
from tambomq.store.call import Call, Plan, load_script, results

STEPS: Final = 500
"""What one script does at most, about: messages moved, peers looked at, keys of peers."""
_AT_ONCE: Final = 8
"""Steps of one trip, where it is known that there is more to do."""
_TRIES: Final = 32
"""Pages in which one peer can leave a thousand keys, twice over, if nothing comes meanwhile."""

_PARTS: Final = ("put_back", "kept", "unhand", "seen", "number", "aside")
_UNSUBSCRIBE = load_script("tambomq.gomq", "unsubscribe", "kept", "number")
_SETTLE = load_script("tambomq.gomq", "settle", *_PARTS)
_REAP = load_script("tambomq.gomq", "reap", *_PARTS, "leave")
_ARRIVALS = load_script("tambomq.gomq", "arrivals")

_DONE, _ON_WITH_IT, _LOOK = range(3)
Telling: TypeAlias = Callable[[Call[Any]], Call[Any]]


class Reaped(msgspec.Struct, frozen=True):
    """What became of silent peers."""

    peers: int
    returned: int
    """Messages that nobody else had received or will receive: they are in their main queue."""


class Page(msgspec.Struct, frozen=True):
    """What became of some peers of a consumer."""

    peers: int
    cursor: bytes
    """Where to go on; ``0`` after the last, ``again`` if there was too much to do."""
    keys: list[str]
    """What is to be settled."""


class Present(msgspec.Struct, frozen=True):
    """Who receives a key, as far as it concerns leavers."""

    upto: int = 0
    """Of the queues that were set aside, those up to this number were when this was looked at."""
    eldest: int | None = None
    """How many messages were dispatched when the first of those who are there came."""
    least: int | None = None
    """What all who are there have observed, is before the message of this number."""


def unsubscribe(
    key: str, consumer: str, *, peer: str = "", acked: str = "", told: Telling | None = None
) -> Plan[int | None]:
    """Let *consumer* receive *key* no more; `None` when it did not.

    What only its peers were owed goes back to the main queue; the result says how much. *acked* is
    the batch that has arrived at *peer*. *told* makes the call one that tells of that.
    """
    call = end_subscription(key, consumer, peer, acked)
    known = results((yield (told(call) if told else call,)))[0]
    return (yield from settle(key)) if known else None


def end_subscription(key: str, consumer: str, peer: str, acked: str) -> Call[bool]:
    """Dispatch nothing of *key* to *consumer* any more; false when nothing was.

    What its peers are owed is to be settled.
    """
    where = (
        *(keys.queue(key), keys.consumers(key), keys.tally(key)),
        *(keys.subscriptions(consumer), keys.peers(consumer), keys.SUBSCRIBED_KEYS),
        *(keys.unsubscribed(key), keys.UNSETTLED, keys.ASIDE, keys.handed(consumer, peer)),
    )
    args = (key, consumer, acked, keys.LEAVERS, keys.channel(consumer))
    return Call(_UNSUBSCRIBE, where, args, decode=lambda reply: reply > 0, repeatable=True)


def reap(consumer: str, options: Options) -> Plan[Reaped]:
    """Disconnect the peers of *consumer* that have been silent for too long."""
    page = results((yield (reap_page(consumer, options),)))[0]
    return (yield from reap_on(consumer, options, page))


def reap_on(consumer: str, options: Options, page: Page) -> Plan[Reaped]:
    """Go on where *page*, the first of a `reap`, ends."""
    cursor, peers, due = page.cursor, page.peers, dict.fromkeys(page.keys)
    here, tries = b"0", 0
    while cursor != b"0":
        here = here if cursor == b"again" else cursor
        # Who publishes faster than a peer leaves its keys does not keep it there for ever.
        steps = STEPS * (1 + tries // _TRIES)
        page = results((yield (reap_page(consumer, options, here, steps),)))[0]
        cursor, peers = page.cursor, peers + page.peers
        tries = 0 if page.peers else tries + 1
        due |= dict.fromkeys(page.keys)
    return Reaped(peers, (yield from settle_all(due)))


def reap_page(
    consumer: str, options: Options, cursor: bytes = b"0", steps: int | None = None
) -> Call[Page]:
    """Disconnect those of some peers that have been silent for too long.

    One of many keys leaves some of them, and the others in the pages that follow.
    """
    names_of = (keys.QUEUE, keys.MESSAGES, keys.TALLY, keys.LEAVING, keys.LEFT)
    return Call(
        _REAP,
        (keys.subscriptions(consumer), keys.peers(consumer), keys.UNSETTLED, keys.ASIDE),
        (
            *(consumer, options.peer_timeout_s, keep_s(options), cursor, steps or STEPS),
            *(*names_of, keys.LASTACTION, keys.HANDED),
        ),
        decode=lambda reply: Page(reply[0], reply[1], names(reply[2])),
        repeatable=True,
    )


def unsettled(cursor: bytes = b"0") -> Call[tuple[bytes, list[str]]]:
    """Return where to go on, and some keys that are not settled; the last page goes on at ``0``."""
    return Call(
        "SSCAN",
        (keys.UNSETTLED,),
        (cursor, "COUNT", STEPS),
        decode=lambda reply: (reply[0], names(reply[1])),
        repeatable=True,
    )


def settle_all(due: Iterable[str]) -> Plan[int]:
    """Settle each key; how many messages went back."""
    returned = 0
    for key in due:
        returned += yield from settle(key)
    return returned


def settle(key: str) -> Plan[int]:
    """Let what leavers of *key* were owed go back, as far as nobody else has it; how much did."""
    returned, present, count = 0, Present(), 1
    while True:
        replies: list[tuple[int, int]] = results((yield [settle_some(key, present)] * count))
        returned += sum(back for _, back in replies)
        state, count = replies[-1][0], _AT_ONCE
        if state == _DONE:
            return returned
        if state == _LOOK:
            present, count = (yield from receivers(key)), 1


def settle_some(key: str, present: Present) -> Call[tuple[int, int]]:
    """Go on with a key that is not settled; what is next, and how many messages went back.

    *present* was looked at before, or is empty: then only what needs no such look is done.
    """
    where = (
        *(keys.queue(key), keys.consumers(key), keys.tally(key), keys.leaving(key)),
        *(keys.unsubscribed(key), keys.UNSETTLED, keys.ASIDE),
    )
    args = (
        *(key, keys.LEFT, keys.LEAVERS, keys.MESSAGES, keys.HANDED),
        *(present.upto, _word(present.eldest), _word(present.least), STEPS),
    )
    return Call(_SETTLE, where, args, decode=tuple, repeatable=True)


def receivers(key: str) -> Plan[Present]:
    """Look at everybody who is there to receive *key*.

    Who comes meanwhile has nothing of what was set aside before. Who leaves meanwhile is counted,
    and answers itself for what it was owed: its queue has a higher number.
    """
    first: int | None = None
    eldest: int | None = None
    least: int | None = None
    todo = [("", b"0")]
    while todo:
        pages = results((yield [_arrivals(key, *each) for each in todo[:_AT_ONCE]]))
        done, todo = todo[:_AT_ONCE], todo[_AT_ONCE:]
        for (consumer, _), (upto, cursor, since, low, rest) in zip(done, pages, strict=True):
            first = upto if first is None else first
            eldest = since if eldest is None else min(eldest, eldest if since is None else since)
            least = low if least is None else min(least, low)
            todo += [(owner, b"0") for owner in rest]
            if cursor != b"0":
                todo.append((consumer, cursor))
    return Present(first or 0, eldest, least)


def _arrivals(key: str, consumer: str, cursor: bytes) -> Call[tuple[Any, ...]]:
    where = (keys.consumers(key), keys.tally(key), keys.ASIDE)
    args = (consumer, cursor, keys.PEERS, keys.lists(key), STEPS)
    return Call(_ARRIVALS, where, args, decode=_seen, repeatable=True)


def _seen(reply: list[Any]) -> tuple[Any, ...]:
    upto, cursor, eldest, least, rest = reply
    return int(upto), cursor, int(eldest) if eldest else None, int(least), rest


def _word(number: int | None) -> int | str:
    return "" if number is None else number
