"""Samples of GOMQ keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.queues.turns import Turns
from tambomq.errors import StoreUnavailable, TamboError
from tambomq.gomq.bulk import sample as ops
from tambomq.gomq.bulk.sample import Receivers
from tambomq.store.aio import AsyncStore

CHUNK: Final = 500
"""Keys of one round trip: others' calls get their turn in between."""
PEER_LOOKS: Final = 50
"""Keys of one refresh whose peers are looked at."""


class _KeyState(msgspec.Struct):
    """What is kept of a key between two looks at its peers."""

    receivers: Receivers = Receivers([], cut_off=False)
    dispatched: int = 0
    """At the last look."""
    left: int = 0
    """Messages that peers have observed since the first look, counted once for each."""


class GomqQueues:
    """Samples GOMQ keys: the main queue always, the dedicated queues of peers in turns."""

    def __init__(self, store: AsyncStore) -> None:
        self._store, self._turns = store, Turns(PEER_LOOKS)
        self._states: dict[str, _KeyState] = {}

    async def sample(self, names: Sequence[str], now_ms: int) -> dict[str, QueueSample]:
        """Return the numbers of the keys. Raises `StoreUnavailable`."""
        self._states = {name: self._states.get(name) or _KeyState() for name in names}
        looked_at = set(self._turns.take(names))
        samples = {}
        for first in range(0, len(names), CHUNK):
            chunk = names[first : first + CHUNK]
            calls = [call for name in chunk for call in (ops.length(name), ops.dispatched(name))]
            peers = [name for name in chunk if name in looked_at]
            outcomes = await self._store.outcomes([*calls, *map(ops.receivers, peers)])
            for outcome in outcomes:
                if isinstance(outcome, StoreUnavailable):
                    raise outcome
            found = dict(zip(peers, outcomes[len(calls) :], strict=True))
            for place, name in enumerate(chunk):
                pair = outcomes[2 * place : 2 * place + 2]
                waiting, dispatched = (None if isinstance(n, TamboError) else n for n in pair)
                if isinstance(receivers := found.get(name), Receivers):
                    _look(self._states[name], receivers, dispatched or 0)
                damaged = (waiting is None) + (dispatched is None)
                numbers = (waiting or 0, dispatched or 0, damaged)
                samples[name] = _sample(self._states[name], numbers, now_ms)
        return samples

    def receivers(self, name: str) -> Receivers:
        """Return the peers of a key at the last look."""
        state = self._states.get(name)
        return state.receivers if state else Receivers([], cut_off=False)


def _look(state: _KeyState, receivers: Receivers, dispatched: int) -> None:
    """Count what each peer that was there before has observed since."""
    before = {(row.consumer, row.peer): row.waiting for row in state.receivers.rows}
    came = max(0, dispatched - state.dispatched)
    for row in receivers.rows:
        if (waited := before.get((row.consumer, row.peer))) is not None:
            state.left += max(0, came + waited - row.waiting)
    state.receivers, state.dispatched = receivers, dispatched


def _sample(state: _KeyState, numbers: tuple[int, int, int], now_ms: int) -> QueueSample:
    waiting, dispatched, damaged = numbers
    rows = state.receivers.rows
    handed = sum(row.handed for row in rows)
    visible = waiting + sum(row.waiting for row in rows)
    silent = [(now_ms - row.last_action_ms, row.peer) for row in rows if row.last_action_ms]
    silence_ms, peer = max(silent, default=(0, ""))
    return QueueSample(
        depth=visible + handed,
        visible=visible,
        in_flight=handed,
        entered=dispatched + waiting,
        left=state.left,
        workers=len(rows),
        copies=max(1, len(rows)),
        silent_peer=(peer, max(0, silence_ms) / 1000) if peer else None,
        damaged=damaged,
    )
