"""Tokens tell chunks apart, and go when they are no longer needed."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.errors import LocalProtocolError
from tambomq.spark.sink import fence
from tambomq.spark.sink.fence import Task
from tambomq.store.sync import Store
from tests.spark.sinking import Context

KEY = "some:fence"


def test_a_token_names_query_batch_partition_and_chunk() -> None:
    task = fence.stream_task(Context(partition=3, query="q", batch=7))
    assert task == Task("q", 7, 3)
    assert task.chunk_token(5, "digest") == (7, "7/3/5", "digest", fence.WEEK_S)


def test_a_batch_write_is_named_by_its_run() -> None:
    assert fence.batch_task(Context(partition=3), "run") == Task("run", 0, 3)


def test_a_task_of_no_query_is_refused() -> None:
    bare = Context()
    bare.known.clear()
    with pytest.raises(LocalProtocolError, match="which query"):
        fence.stream_task(bare)


def test_a_digest_depends_on_rows_their_order_and_their_boundaries() -> None:
    rows: list[list[bytes | None]] = [
        [b"ab", b"c"],
        [b"a", b"bc"],
        [b"c", b"ab"],
        [b"ab", None],
        [b"ab"],
        [b"ab", b"c", b""],
    ]
    assert len({fence.digest(each) for each in rows}) == len(rows)
    assert fence.digest([b"ab"], ["q"]) == fence.digest([b"ab"], ["q"])
    others = [fence.digest([b"ab"], queues) for queues in ([], ["q"], ["p"], [None])]
    assert len(set(others)) == len(others)


def test_replies_say_whether_a_chunk_was_written_now() -> None:
    task = Task("q", 7, 3)
    assert task.settled(1)
    assert not task.settled(0)
    with pytest.raises(LocalProtocolError, match=r"partition 3 of batch 7 .* in another order"):
        task.settled(-1)
    with pytest.raises(LocalProtocolError, match="batch 7 is closed"):
        task.settled(-2)


def test_pruning_deletes_tokens_of_earlier_batches_and_refuses_their_writes(
    each: Store, each_db: redis.Redis
) -> None:
    tokens: dict[Any, Any] = {
        f"{batch}/0/{chunk}": "x" for batch in (1, 9, 10, 11) for chunk in range(800)
    }
    each_db.hset(KEY, mapping=tokens)
    assert each.follow(fence.prune([KEY], 10)) == 1600
    left = cast("dict[bytes, bytes]", each_db.hgetall(KEY))
    assert left.pop(b"floor") == b"10"
    assert {token.split(b"/")[0] for token in left} == {b"10", b"11"}
    assert 0 < each_db.ttl(KEY) <= fence.WEEK_S


def test_one_script_prunes_a_page_of_a_large_fence(each: Store, each_db: redis.Redis) -> None:
    tokens: dict[Any, Any] = {f"{chunk % 2}/0/{chunk}": "x" for chunk in range(20_000)}
    each_db.hset(KEY, mapping=tokens)
    calls: Any = next(iter(fence.prune([KEY, "another"], 1)))
    pages = each.run_all(calls)
    # A hash that is scanned while it is rehashed gives somewhat larger pages.
    assert 0 < pages[0][1] < 2000
    assert each.follow(fence.prune([KEY], 1)) == 10_000 - pages[0][1]


def test_the_floor_of_a_fence_never_decreases(each: Store, each_db: redis.Redis) -> None:
    for first_batch in (10, 9):
        each.follow(fence.prune([KEY], first_batch))
    assert each_db.hget(KEY, "floor") == b"10"


def test_the_fence_of_a_write_that_ended_outlives_its_last_tasks(
    each: Store, each_db: redis.Redis
) -> None:
    each_db.hset(KEY, "0/0/0", "x")
    each.run(fence.outlive(KEY))
    assert 0 < each_db.ttl(KEY) <= fence.HOUR_S
