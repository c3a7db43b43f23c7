"""Every script does a bounded number of steps, whatever is stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import redis

from tambomq.errors import LimitReached
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys
from tambomq.gomq.model import MAX_RECORDS, Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.server.auth import Caller, PeerNameLimit
from tambomq.store.call import Call, Script
from tambomq.store.sync import Store
from tests.gomq.conftest import Peer, Serve
from tests.gomq.ops.test_leave import be_silent
from tests.servers import Server

OPTIONS = Options(max_peers=10_000)
# A step is a message that is moved, or a peer that leaves a key; the latter takes some commands.
MAX_COMMANDS = 4 * leave_ops.STEPS


class Counting(Store):
    """Makes one call at a time, and counts the commands that each script gives."""

    def __init__(self, url: str, db: redis.Redis) -> None:
        super().__init__(url)
        self._db = db
        self.counts: list[int] = []

    def outcomes(self, calls: Sequence[Call[Any]]) -> list[Any]:
        replies = []
        for call in calls:
            before = self._commands()
            replies += super().outcomes((call,))
            if isinstance(call.verb, Script):
                self.counts.append(self._commands() - before)
        return replies

    def _commands(self) -> int:
        stats = cast("dict[str, dict[str, int]]", self._db.info("commandstats"))
        own = ("cmdstat_info", "cmdstat_evalsha", "cmdstat_eval")
        return sum(each["calls"] for name, each in stats.items() if name not in own)


@pytest.fixture
def counting(server: Server, db: redis.Redis) -> Iterator[Counting]:
    """A store that counts, on an empty server."""
    store = Counting(server.url, db)
    yield store
    store.close()


def come(store: Store, peers: int, key: str = "k") -> list[str]:
    """Subscribe *peers* peers of one consumer."""
    names = [f"p{n}" for n in range(peers)]
    calls = [message_ops.subscribe(key, "c", name, OPTIONS) for name in names]
    for first in range(0, peers, 500):
        store.run_all(calls[first : first + 500])
    return names


def owe(db: redis.Redis, peer: str, messages: int) -> None:
    """Add *messages* messages of k that wait for *peer* alone."""
    body = b"x" * 100
    for first in range(0, messages, 50_000):
        some = min(50_000, messages - first)
        db.rpush(keys.messages("k", "c", peer), *[body] * some)
    db.hset(keys.tally("k"), "dispatched", messages)


SOME = pytest.param(700, id="some")
MANY = pytest.param(10_000, id="many", marks=(pytest.mark.slow, pytest.mark.timeout(600)))


@pytest.mark.parametrize("peers", [SOME, MANY])
def test_peers_that_fall_silent_together_leave_in_bounded_steps(
    counting: Counting, store: Store, db: redis.Redis, monkeypatch: pytest.MonkeyPatch, peers: int
) -> None:
    monkeypatch.setattr(message_ops, "MAX_RECEIVERS", peers)
    be_silent(db, *come(store, peers))
    store.run(message_ops.push("k", [b"1", b"2"]))
    while store.run(message_ops.dispatch("k")).left:
        pass
    be_silent(db, *(f"p{n}" for n in range(peers)))
    assert counting.follow(leave_ops.reap("c", OPTIONS)) == leave_ops.ReapResult(peers, 2)
    assert max(counting.counts) <= MAX_COMMANDS
    # Neither is it quadratic: each leaves with a few commands.
    assert sum(counting.counts) < 40 * peers
    assert db.lrange("QUEUE_k", 0, -1) == [b"1", b"2"]
    assert not db.exists("PEERS_c", "LEAVING_k", "UNSETTLED")


@pytest.mark.parametrize("peers", [SOME, MANY])
def test_a_consumer_with_many_peers_unsubscribes_in_bounded_steps(
    counting: Counting, store: Store, db: redis.Redis, monkeypatch: pytest.MonkeyPatch, peers: int
) -> None:
    monkeypatch.setattr(message_ops, "MAX_RECEIVERS", peers)
    come(store, peers)
    store.run(message_ops.push("k", [b"1"]))
    store.run(message_ops.dispatch("k"))
    assert counting.follow(leave_ops.unsubscribe("k", "c")) == 1
    assert max(counting.counts) <= MAX_COMMANDS
    assert sum(counting.counts) < 40 * peers
    left = {name for name in db.scan_iter() if not name.startswith(b"LASTACTION_")}
    assert left == {b"QUEUE_k"}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(3000, id="some"),
        pytest.param(5_000_000, id="many", marks=(pytest.mark.slow, pytest.mark.timeout(900))),
    ],
)
@pytest.mark.parametrize("observed", [False, True], ids=["alone", "as_another_had"])
def test_messages_of_a_departed_peer_are_settled_in_bounded_steps(
    counting: Counting, store: Store, db: redis.Redis, messages: int, *, observed: bool
) -> None:
    come(store, 1)
    owe(db, "p0", messages)
    if observed:
        db.hset("TALLY_k", "seen", f"5-{messages}")
    be_silent(db, "p0")
    returned = 5 if observed else messages
    assert counting.follow(leave_ops.reap("c", OPTIONS)) == leave_ops.ReapResult(1, returned)
    assert max(counting.counts) <= MAX_COMMANDS
    assert db.llen("QUEUE_k") == returned


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_peer_of_many_keys_leaves_them_in_bounded_steps(
    counting: Counting, store: Store, db: redis.Redis, count: int
) -> None:
    named = [f"k{n}" for n in range(count)]
    for peer in ("p0", "p1", "p2"):
        store.run_all([message_ops.subscribe(key, "c", peer, OPTIONS) for key in named])
    store.run_all([message_ops.push(key, [b"1", b"2"]) for key in named])
    store.run_all([message_ops.dispatch(key) for key in named])
    handed = store.run(message_ops.observe("c", "p0", OPTIONS)).messages
    seen = {key.decode() for key, _ in handed}
    be_silent(db, "p0", "p1", "p2")
    counting.counts.clear()
    back = 2 * (count - len(seen))
    assert counting.follow(leave_ops.reap("c", OPTIONS)) == leave_ops.ReapResult(3, back)
    # Each page looks at all keys of a peer.
    assert max(counting.counts) <= MAX_COMMANDS + 4 * count
    assert all(db.llen(f"QUEUE_{key}") == (0 if key in seen else 2) for key in named)
    assert not [*db.scan_iter("MESSAGES_*"), *db.scan_iter("LE*"), *db.scan_iter("PEERS_*")]


def test_a_peer_that_returns_while_leaving_gets_its_remaining_messages(
    store: Store, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_ops, "STEPS", 12)
    named = [f"k{n}" for n in range(5)]
    store.run_all([message_ops.subscribe(key, "c", "p", OPTIONS) for key in named])
    store.run_all([message_ops.push(key, [key.encode()]) for key in named])
    store.run_all([message_ops.dispatch(key) for key in named])
    be_silent(db, "p")
    page = store.run(leave_ops.reap_page("c", OPTIONS))
    assert (page.peers, page.cursor, len(page.keys)) == (0, b"again", 1)
    found = dict(store.run(message_ops.observe("c", "p", OPTIONS)).messages)
    assert {*found} == {key.encode() for key in named if key not in page.keys}
    assert store.follow(leave_ops.reap("c", OPTIONS)) == leave_ops.ReapResult(0, 0)
    store.follow(leave_ops.settle_all(page.keys))
    store.run_all([message_ops.dispatch(key) for key in named])
    rest = dict(store.run(message_ops.observe("c", "p", OPTIONS)).messages)
    assert {**found, **rest} == {key.encode(): [key.encode()] for key in named}
    assert not {*found} & {*rest}


def test_a_consumer_of_many_peers_subscribes_in_few_commands(
    counting: Counting, store: Store, db: redis.Redis
) -> None:
    names = come(store, 700)
    counting.run(message_ops.subscribe("other", "c", "p0", OPTIONS))
    assert max(counting.counts) < 50
    assert db.hlen("TALLY_other") == len(names)


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(3000, id="some"),
        pytest.param(100_000, id="many", marks=(pytest.mark.slow, pytest.mark.timeout(300))),
    ],
)
def test_keys_with_messages_are_looked_for_in_bounded_steps(
    counting: Counting, db: redis.Redis, count: int
) -> None:
    db.sadd("PEERS_c", "p")
    for first in range(0, count, 10_000):
        with db.pipeline(transaction=False) as pipeline:
            for n in range(first, min(count, first + 10_000)):
                pipeline.sadd("SUBSCRIBED_KEYS", f"QUEUE_{n}")
                pipeline.sadd(f"CONSUMERS_{n}", "c")
                pipeline.rpush(f"QUEUE_{n}", "x")
            pipeline.execute()
    found, cursor = set(), b"0"
    while True:
        cursor, page = counting.run(message_ops.pending(cursor))
        found.update(page)
        if cursor == b"0":
            break
    assert found == {str(n) for n in range(count)}
    assert max(counting.counts) <= MAX_COMMANDS


def test_one_reply_has_no_more_than_a_thousand_messages_of_all_keys(
    store: Store, db: redis.Redis
) -> None:
    for n in range(30):
        store.run(message_ops.subscribe(f"k{n}", "c", "p", OPTIONS))
        store.run(message_ops.push(f"k{n}", [b"x"] * 50))
        store.run(message_ops.dispatch(f"k{n}"))
    sizes = []
    while found := store.run(message_ops.observe("c", "p", OPTIONS)).messages:
        sizes.append(sum(len(messages) for _, messages in found))
    assert sizes == [1000, 500]


# ── so many, and no more ─────────────────────────────────────────────────────


def test_a_consumer_has_no_more_peers_than_it_may(store: Store, db: redis.Redis) -> None:
    options = Options(max_peers=2)
    for peer in "pq":
        assert store.run(message_ops.subscribe("k", "c", peer, options)) is not None
    calls: list[Call[Any]] = [
        message_ops.subscribe("k", "c", "r", options),
        message_ops.observe("c", "r", options),
        message_ops.observe_kept("c", "r", options, acked="", batch="b"),
    ]
    for call in calls:
        with pytest.raises(LimitReached, match="consumer 'c' has 2 peers, which is the maximum"):
            store.run(call)
    assert db.smembers("PEERS_c") == {b"p", b"q"}
    # Connected peers are served, and when one leaves another may connect.
    store.run(message_ops.observe("c", "p", options))
    be_silent(db, "q")
    assert store.follow(leave_ops.reap("c", options)).peers == 1
    assert store.run(message_ops.observe("c", "r", options)).is_due


def test_a_consumer_has_no_more_keys_than_it_may(store: Store, db: redis.Redis) -> None:
    options = Options(max_keys=2)
    for key in "ab":
        store.run(message_ops.subscribe(key, "c", "p", options))
    with pytest.raises(LimitReached, match="consumer 'c' has 2 keys"):
        store.run(message_ops.subscribe("z", "c", "p", options))
    assert store.run(message_ops.subscribe("a", "c", "p", options)) is False
    assert db.smembers("SUBSCRIPTIONS_c") == {b"a", b"b"}
    assert not db.exists("CONSUMERS_z")


def test_a_key_has_no_more_peers_than_one_dispatch_may_serve(
    store: Store, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_RECEIVERS", 3)
    for consumer in "abc":
        store.run(message_ops.subscribe("k", consumer, "p", OPTIONS))
    store.run(message_ops.push("k", [b"1"]))
    store.run(message_ops.dispatch("k"))
    with pytest.raises(LimitReached, match="key 'k' has 3 peers or consumers"):
        store.run(message_ops.subscribe("k", "d", "p", OPTIONS))
    assert db.smembers("CONSUMERS_k") == {b"a", b"b", b"c"}


def test_a_connection_has_no_more_peers_than_it_may() -> None:
    names = PeerNameLimit(max_names=2, window_s=30)
    for peer in ("p", "q", "p"):
        names.use(Caller(peer, address="1.2.3.4:5"), 100)
    with pytest.raises(LimitReached, match="this connection has 2 peers"):
        names.use(Caller("r", address="1.2.3.4:5"), 110)
    names.use(Caller("r", address="1.2.3.4:6"), 110)
    names.use(Caller("1.2.3.4:5"), 110)
    # A peer that has been silent for this long is disconnected.
    names.use(Caller("p", address="1.2.3.4:5"), 120)
    names.use(Caller("r", address="1.2.3.4:5"), 131)


async def test_peers_of_one_connection_are_counted_in_all_that_makes_one(serve: Serve) -> None:
    service = await serve(max_connection_peers=1)
    peer = Peer(service)
    await service.subscribe(peer._subscription("k"), Caller("p", address="a:1"))
    for call in (
        service.subscribe(peer._subscription("k"), Caller("q", address="a:1")),
        service.observe(peer.identity, Caller("q", address="a:1")),
        anext(service.watch(peer.identity, Caller("q", address="a:1"))),
    ):
        with pytest.raises(LimitReached):
            await call


async def test_one_call_publishes_no_more_records_than_a_script_may_append(
    serve: Serve, db: redis.Redis
) -> None:
    service = await serve()
    records = [pb.PublishRecord(key="k", payload=b"") for _ in range(MAX_RECORDS)]
    with pytest.raises(LimitReached, match="this call has 10000 records"):
        await service.publish_many(pb.PublishRecords(records=[*records, records[0]]), Caller("a:1"))
    assert not db.exists("QUEUE_k")
    await service.publish_many(pb.PublishRecords(records=records), Caller("a:1"))
    assert db.llen("QUEUE_k") == MAX_RECORDS


# ── in between ───────────────────────────────────────────────────────────────


def test_nothing_is_dispatched_before_older_messages_are_requeued(
    store: Store, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leave_ops, "STEPS", 12)
    come(store, 1)
    store.run(message_ops.push("k", [b"%d" % n for n in range(20)]))
    store.run(message_ops.dispatch("k"))
    be_silent(db, "p0")
    store.run(leave_ops.reap_page("c", OPTIONS))
    present = store.follow(leave_ops.look_up_receivers("k"))
    store.run(leave_ops.settle_some("k", present))
    assert 0 < db.llen("QUEUE_k") < 20
    # Its consumer is back before all is.
    store.run(message_ops.subscribe("k", "c", "p1", OPTIONS))
    store.run(message_ops.push("k", [b"20"]))
    assert store.run(message_ops.dispatch("k")).is_unsettled
    store.follow(leave_ops.settle("k"))
    while store.run(message_ops.dispatch("k")).left:
        pass
    assert db.lrange("MESSAGES_k_c_p1", 0, -1) == [b"%d" % n for n in range(21)]


async def test_another_server_ends_what_one_that_died_had_begun(
    serve: Serve, store: Store, db: redis.Redis
) -> None:
    come(store, 3)
    store.run(message_ops.push("k", [b"1"]))
    store.run(message_ops.dispatch("k"))
    assert store.run(leave_ops.unsubscribe_call("k", "c", "p0", ""))
    assert not db.exists("QUEUE_k")
    service = await serve()
    await service._reaper.check()
    assert db.lrange("QUEUE_k", 0, -1) == [b"1"]
    assert not db.exists("UNSETTLED", "UNSUBSCRIBED_k", "TALLY_k")


async def test_a_consumer_that_resubscribes_while_leaving_is_served(
    serve: Serve, store: Store
) -> None:
    come(store, 3)
    store.run(message_ops.push("k", [b"1"]))
    store.run(message_ops.dispatch("k"))
    store.run(leave_ops.unsubscribe_call("k", "c", "p0", ""))
    assert store.run(message_ops.subscribe("k", "c", "p0", OPTIONS)) is None
    service = await serve()
    await Peer(service, "p0").subscribe("k")
    assert len(await Peer(service, "p0").observe()) == 1
