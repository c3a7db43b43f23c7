"""Leased streams as Spark calls them, without Spark: crashes, rivals and lapses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tambomq.bulk.lease_model import OpenClaim
from tambomq.errors import EntriesLost, LeaseLost, LeaseTaken, QueueNotFound
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.spark.core.options import RedisTarget
from tambomq.spark.formats.rsmq.leased import LeasedMessages
from tambomq.spark.lease.reader import LeasedReader, LeaseOptions
from tests.servers import Server, eventually
from tests.spark.fake_spark import die, read

KEYS = Keys()
START = {"claim": 0, "mark": ""}
Make = Callable[..., LeasedReader]


@pytest.fixture
def make(server: Server) -> Iterator[Make]:
    """A function from options to a reader of queue ``q``, stopped after the test."""
    made: list[LeasedReader] = []

    def new(*, redis_target: Any = None, lease: str = "l", **options: Any) -> LeasedReader:
        target, lease_options = redis_target or RedisTarget(server.url), LeaseOptions(**options)
        made.append(LeasedReader(LeasedMessages(KEYS), target, "q", lease, lease_options))
        return made[-1]

    yield new
    for reader in made:
        reader.stop()


@pytest.fixture
def queue(rsmq: Rsmq) -> Rsmq:
    rsmq.create_queue("q")
    return rsmq


def is_over(db: redis.Redis, *names: str) -> None:
    """As if so much time had passed for the lease ``l``."""
    db.hset(KEYS.ledger("q", "l"), mapping=dict.fromkeys(names, 1))


def abandoned(make: Make, queue: Rsmq) -> dict[str, Any]:
    """Return where the first batch of a query ends that died in it, with two messages."""
    queue.send_messages("q", [b"a", b"b"])
    dead = make()
    end = dead.latestOffset(dead.initialOffset(), ReadMaxRows(2))
    die(dead)
    return end


def lapse(db: redis.Redis, queue: Rsmq) -> None:
    """Make all messages visible, as after a lease that was not renewed for long."""
    is_over(db, "until", "hidden_until")
    for message in queue.peek_messages("q", 1000):
        db.zadd(KEYS.messages("q"), {message.id: 1})


def test_a_batch_is_deleted_when_the_next_one_starts(make: Make, queue: Rsmq) -> None:
    sent = queue.send_messages("q", [b"a", b"b", b"c"])
    reader = make(partition_count=2)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    rows = read(reader, START, end)
    assert [row["id"] for row in rows] == sent[:2]
    assert [row["body"] for row in rows] == [b"a", b"b"]
    (word,) = {row["claim"] for row in rows}
    claim = OpenClaim.parse(word)
    assert (claim.number, claim.claim_token) == (end["claim"], end["mark"])
    assert claim.number == 1
    assert {row["fault"] for row in rows} == {None}
    assert len(queue.peek_messages("q", 9)) == 3
    after = reader.latestOffset(end, ReadAllAvailable())
    assert [m.id for m in queue.peek_messages("q", 9)] == sent[2:]
    reader.commit(end)
    reader.commit(after)
    assert queue.peek_messages("q", 9) == []
    assert reader.latestOffset(after, ReadMaxRows(9)) == after


def test_parts_are_equal_and_none_is_empty(make: Make, queue: Rsmq) -> None:
    queue.send_messages("q", [b"x"] * 10)
    reader = make(partition_count=3)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    partition_count: Any = reader.partitions(START, end)
    assert [(each.part.first, each.part.count) for each in partition_count] == [
        (0, 3),
        (3, 3),
        (6, 4),
    ]
    assert reader.partitions(end, end) == []
    assert (
        len(make(partition_count=9, redis_target=None, lease="other").partitions(START, START)) == 0
    )


def test_messages_sent_after_the_start_are_left_for_the_next_run(make: Make, queue: Rsmq) -> None:
    queue.send_messages("q", [b"x"] * 5)
    reader = make()
    reader.prepareForTriggerAvailableNow()
    queue.send_messages("q", [b"late"] * 5)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    second = reader.latestOffset(first, ReadMaxRows(3))
    assert len(read(reader, first, second)) == 2
    assert reader.latestOffset(second, ReadMaxRows(3)) == second
    assert len(queue.peek_messages("q", 99)) == 5


def test_a_new_checkpoint_continues_after_the_last_claim(make: Make, queue: Rsmq) -> None:
    queue.send_messages("q", [b"a", b"b"])
    old = make()
    old.commit(old.latestOffset(old.initialOffset(), ReadMaxRows(1)))
    old.stop()
    new = make()
    assert new.initialOffset() == {"claim": 1, "mark": ""}
    end = new.latestOffset(new.initialOffset(), ReadMaxRows(1))
    assert [row["body"] for row in read(new, {"claim": 1, "mark": ""}, end)] == [b"b"]


def test_a_second_query_is_refused_while_the_first_lives(make: Make, queue: Rsmq) -> None:
    make(lease_s=2).initialOffset()
    with pytest.raises(LeaseTaken, match=r"lease 'l' on queue 'q' is held by process \d+ on .*"):
        make().initialOffset()
    make(lease="other").initialOffset()


def test_a_query_waits_for_one_that_is_dead(make: Make, queue: Rsmq) -> None:
    dead = make(lease_s=0.6)
    dead.initialOffset()
    die(dead)
    assert make().initialOffset() == START


def test_a_query_that_ends_leaves_its_lease_at_once(make: Make, queue: Rsmq) -> None:
    first = make(lease_s=3600)
    first.initialOffset()
    first.stop()
    make(lease_s=3600).initialOffset()


def test_a_replaced_owner_reads_claims_and_acknowledges_nothing(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    queue.send_messages("q", [b"a", b"b"])
    zombie = make()
    end = zombie.latestOffset(zombie.initialOffset(), ReadMaxRows(1))
    (part, *_) = zombie.partitions(START, end)
    is_over(db, "until")
    heir = make()
    assert heir.latestOffset(heir.initialOffset(), ReadMaxRows(1)) == end
    for act in (
        lambda: zombie.latestOffset(START, ReadMaxRows(1)),
        lambda: zombie.partitions(START, end),
        lambda: zombie.commit(end),
    ):
        with pytest.raises(LeaseLost, match="is lost: process"):
            act()
    with pytest.raises(LeaseLost, match="no longer open for this query"):
        list(zombie.read(part))
    assert len(read(heir, START, end)) == 1
    assert len(queue.peek_messages("q", 9)) == 2


def test_the_lease_and_its_messages_are_renewed(make: Make, queue: Rsmq, db: redis.Redis) -> None:
    queue.send_message("q", b"a")
    reader = make(lease_s=1.5)
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    (before,) = queue.peek_messages("q", 1)
    eventually(lambda: queue.peek_messages("q", 1)[0].visible_at > before.visible_at + 1600)
    assert queue.receive_message("q") is None


def test_the_heartbeat_of_a_replaced_owner_stops(make: Make, queue: Rsmq, db: redis.Redis) -> None:
    reader = make(lease_s=0.3)
    reader.initialOffset()
    db.hset(KEYS.ledger("q", "l"), mapping={"owner": "x", "label": "me", "until": 2**50})
    assert reader._held is not None
    thread = reader._held._thread
    eventually(lambda: not thread.is_alive())
    with pytest.raises(LeaseLost, match="lost: me has it now"):
        reader.initialOffset()


def test_a_holder_that_returns_too_late_learns_that_others_have_its_messages(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    end = abandoned(make, queue)
    lapse(db, queue)
    other = make(lease="other")
    theirs = other.latestOffset(other.initialOffset(), ReadMaxRows(2))
    assert len(read(other, START, theirs)) == 2
    with pytest.raises(
        EntriesLost, match="claim 1 of lease 'l' on queue 'q' is no longer open: this query"
    ):
        make().partitions(START, end)
    is_over(db, "until")
    careless = make(fail_on_loss=False)
    assert careless.partitions(START, end) == []
    assert careless.latestOffset(end, ReadMaxRows(2)) == end


def test_a_holder_that_returns_late_continues_if_nothing_was_taken(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    end = abandoned(make, queue)
    lapse(db, queue)
    back = make()
    assert len(read(back, START, end)) == 2
    assert queue.receive_message("q") is None


def test_a_holder_that_returns_late_does_not_deliver_what_others_have(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    end = abandoned(make, queue)
    lapse(db, queue)
    taken = queue.receive_message("q")
    for _ in range(3):
        # The error repeats on every try: continuing without them needs an explicit decision.
        with pytest.raises(EntriesLost, match="lacks 1 of its messages"):
            make().partitions(START, end)
        is_over(db, "until")
    rows = read(make(fail_on_loss=False), START, end)
    assert taken is not None
    assert [(row["body"], row["fault"]) for row in rows] == [(None, "taken"), (b"b", None)]


def test_an_earlier_claim_that_is_acknowledged_again_hides_no_loss(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    queue.send_messages("q", [b"a", b"b", b"c"])
    dead = make()
    first = dead.latestOffset(dead.initialOffset(), ReadMaxRows(1))
    second = dead.latestOffset(first, ReadMaxRows(2))
    die(dead)
    lapse(db, queue)
    assert queue.receive_message("q") is not None
    back = make()
    back.commit(first)
    with pytest.raises(EntriesLost, match=r"claim 2 .* lacks 1 of its messages"):
        back.partitions(first, second)


def test_an_unread_claim_leaves_out_what_others_have(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    abandoned(make, queue)
    lapse(db, queue)
    queue.receive_message("q")
    back = make()
    end = back.latestOffset(back.initialOffset(), ReadMaxRows(2))
    assert [row["body"] for row in read(back, START, end)] == [b"b"]


def test_a_body_that_vanished_or_changed_is_a_row_that_says_so(
    make: Make, queue: Rsmq, db: redis.Redis
) -> None:
    deleted, changed, sound = queue.send_messages("q", [b"gone", b"changed", b"sound"])
    reader = make()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    queue.delete_message("q", deleted)
    db.hset(KEYS.data("q"), changed, b"else")
    rows = read(reader, START, end)
    assert [(row["id"], row["body"], row["fault"]) for row in rows] == [
        (deleted, None, "gone"),
        (changed, b"else", "changed"),
        (sound, b"sound", None),
    ]


def test_a_missing_queue_is_reported_at_once(make: Make, rsmq: Rsmq) -> None:
    with pytest.raises(QueueNotFound):
        make().initialOffset()


def test_a_claim_outlives_its_server(private_server: Server) -> None:
    with Rsmq(private_server.url) as client:
        client.create_queue("q")
        sent = client.send_messages("q", [b"a", b"b"])
        reader = LeasedReader(
            LeasedMessages(KEYS), RedisTarget(private_server.url), "q", "l", LeaseOptions()
        )
        end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
        private_server.kill()
        private_server.restart()
        assert [row["id"] for row in read(reader, START, end)] == sent
        assert reader.latestOffset(end, ReadMaxRows(2)) == end
        reader.stop()
        assert client.peek_messages("q", 9) == []
