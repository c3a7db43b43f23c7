"""GOMQ: our dispatch against one command per peer, and our two transports against each other.

Deliveries are measured at the service, without a transport. Calls over a transport come from one
generator that sends prebuilt bytes, with 80 calls in flight on four connections.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from benchmarks.model import Bout, Contender, Limit, Player, Ratio, Subject
from benchmarks.players.gomq_frames import PREFIX
from tambomq.gomq import keys
from tambomq.store.call import Call
from tambomq.store.sync import Store

CONSUMERS = 100
BODY = "x" * 100
SIZES = {16: "16 B", 1024: "1 KiB", 65_536: "64 KiB"}
PER_S = 200

SERVICE = Player("tambomq", (sys.executable, "-m", "benchmarks.players.gomq_service"))


def _transport(name: str) -> Player:
    return Player(
        f"{name} transport", (sys.executable, "-m", "benchmarks.players.gomq_transports", name)
    )


GRPC, ENVOY = _transport("grpc"), _transport("envoy")

Part: TypeAlias = tuple[Sequence[Bout], Sequence[Ratio | Limit]]


def subject(rounds: int, *, quick: bool) -> Subject:
    """What is measured, with *rounds* turns of each; *quick* is a fifth of the work."""
    part = 5 if quick else 1
    bouts: list[Bout] = []
    rows: list[Ratio | Limit] = []
    for some_bouts, some_rows in (
        _deliveries(rounds, part),
        _leaving(min(rounds, 3), part),
        _publishes(rounds, part),
        _survey(min(rounds, 3), part),
        _watch(part),
    ):
        bouts += some_bouts
        rows += some_rows
    return Subject("gomq", (SERVICE, GRPC, ENVOY), bouts, rows)


def _deliveries(rounds: int, part: int) -> Part:
    def of(title: str, messages: int, *, one_by_one: bool) -> Contender:
        options = {"count": messages // part, "warm": 20, "consumers": CONSUMERS, "body": BODY}
        return Contender(title, SERVICE, "deliver", {**options, "one_by_one": one_by_one})

    ours = of("deliver", 2000, one_by_one=False)
    each = of("deliver one by one", 100, one_by_one=True)
    title = f"deliveries to {CONSUMERS} consumers ÷ one command per peer"
    return [Bout((ours, each), rounds, after=_drop)], [Ratio(title, ours, each, 25, 50)]


def _leaving(rounds: int, part: int) -> Part:
    consumers, peers, owed = 5, 1000 // part, 1_000_000 // part
    shape = {"consumers": consumers, "peers": peers, "owed": owed}
    ours = Contender("leave", SERVICE, "leave", shape)
    title = f"{consumers * peers:,} peers leave, {owed:,} messages go back"
    rows: list[Ratio | Limit] = [
        Limit(f"{title}, slowest script", ours, "script", "ms", limit=20),
        Limit(f"{title}, in all", ours, "took", "s"),
    ]
    return [Bout((ours,), rounds, after=_drop)], rows


def _publishes(rounds: int, part: int) -> Part:
    def of(player: Player, calls: int) -> Contender:
        options = {"count": calls // part, "size": 16}
        return Contender(f"{player.name}: publish", player, "publish", options)

    envoy, grpc = of(ENVOY, 15_000), of(GRPC, 4000)
    rows: list[Ratio | Limit] = [
        Ratio("Publish, 16 B, 80 in flight, Envoy ÷ grpc.aio", envoy, grpc, 5, 7),
        Limit("one of these through Envoy, p50", envoy, "p50", "ms"),
        Limit("one of these through grpc.aio, p50", grpc, "p50", "ms"),
        Limit("the generator's share of a core, at Envoy", envoy, "busy", "%", limit=25),
    ]
    return [Bout((envoy, grpc), rounds, after=_drop)], rows


def _survey(rounds: int, part: int) -> Part:
    # Each kind of call for about half a second. Envoy takes more of those that are small.
    calls = (ENVOY, 3), (GRPC, 1)
    rows: list[Ratio | Limit] = []
    transports = []
    for player, more in calls:
        shape = {
            "sizes": list(SIZES),
            "counts": [(2000 * more // part, 100), (2000 * more // part, 100), (600 // part, 10)],
            "size": 100,
            "many": 400 // part,
            "idle": 2000 * more // part,
            "consumers": CONSUMERS,
            "batches": 10 // min(part, 2),
        }
        transports.append(Contender(f"{player.name}: survey", player, "survey", shape))
    kinds = [(f"publish {size}", f"Publish, {shown}, calls") for size, shown in SIZES.items()]
    kinds += [(f"observe {size}", f"Observe, {shown}, messages") for size, shown in SIZES.items()]
    kinds += [
        ("publish many", "PublishMany, 100 of 100 B a call, messages"),
        ("observe nothing", "Observe, nothing there, calls"),
        ("deliver", f"deliveries to {CONSUMERS} consumers, 100 B"),
    ]
    for what, title in kinds:
        for contender, through in zip(transports, ("Envoy", "grpc.aio"), strict=True):
            rows.append(Limit(f"{title}: {through}", contender, what, "/s"))
    return [Bout(transports, rounds, after=_drop)], rows


def _watch(part: int) -> Part:
    rows: list[Ratio | Limit] = []
    transports = []
    for player, through in ((ENVOY, "Envoy"), (GRPC, "grpc.aio")):
        shape = {"count": 400 // part, "warm": 20, "per_s": PER_S}
        contender = Contender(f"{player.name}: watch", player, "watch", shape)
        title = f"Publish to Watch at {PER_S}/s, {through}"
        rows += [Limit(f"{title}, {what}", contender, what, "ms") for what in ("p50", "p99")]
        transports.append(contender)
    return [Bout(transports, 2, after=_drop)], rows


def _drop(url: str, _: Contender) -> None:
    """Delete what a turn has left: the next one would take care of it."""
    store = Store(url)
    queues = store.run(_call("SMEMBERS", keys.SUBSCRIBED_KEYS))
    if ours := [queue for queue in queues if queue.decode().startswith(keys.queue(PREFIX))]:
        store.run(_call("SREM", keys.SUBSCRIBED_KEYS, *ours))
    cursor = b"0"
    while True:
        cursor, found = store.run(_call("SCAN", cursor, "MATCH", f"*_{PREFIX}*", "COUNT", 1000))
        if found:
            store.run(_call("UNLINK", *found))
        if cursor == b"0":
            break
    store.close()


def _call(verb: str, *words: Any) -> Call[Any]:
    return Call(verb, (), words, decode=lambda reply: reply)
