"""Replies: ids in another form than RSMQ's can be shown, settled and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tambomq.rsmq import Rsmq, RsmqWorker
from tambomq.rsmq.keys import check_id
from tambomq.rsmq.ops.replies import id_arg, id_text
from tambomq.rsmq.worker.backoff import Backoff
from tests.servers import Server, eventually_async

NO_TEXT = b"\xff\xfe" * 16
FOREIGN = [NO_TEXT, b"\xc3" + b"a" * 31, rb"a\xff", b"back\\slash\xff", "ñandú".encode(), b"foo"]


@given(st.binary(min_size=1))
def test_any_id_survives_the_round_trip_through_text(stored: bytes) -> None:
    arg = id_arg(id_text(stored))
    assert (arg.encode() if isinstance(arg, str) else arg) == stored


@given(st.binary(min_size=1, max_size=100))
def test_the_text_of_any_id_is_accepted(stored: bytes) -> None:
    with suppress(UnicodeDecodeError):
        if "\\" not in stored.decode():
            return
    assert check_id(id_text(stored))


@pytest.fixture
def client(server: Server, db: redis.Redis) -> Iterator[Rsmq]:
    with Rsmq(server.url) as found:
        found.create_queue("q", vt=0)
        yield found


def put(db: redis.Redis, id: bytes) -> None:
    db.zadd("rsmq:q", {id: 0})
    db.hset("rsmq:q:Q", id, b"body")


@pytest.mark.parametrize("stored", FOREIGN)
def test_a_received_message_can_be_hidden_and_deleted(
    client: Rsmq, db: redis.Redis, stored: bytes
) -> None:
    put(db, stored)
    message = client.receive_message("q")
    assert message is not None
    assert client.change_message_visibility("q", message.id, 0, receipt=message.receipt)
    message = client.receive_message("q")
    assert message is not None
    assert client.delete_message("q", message.id, receipt=message.receipt)
    assert (db.zcard("rsmq:q"), db.hexists("rsmq:q:Q", stored)) == (0, False)


def test_a_message_with_a_foreign_id_can_be_deleted_by_its_id_alone(
    client: Rsmq, db: redis.Redis
) -> None:
    put(db, NO_TEXT)
    (peeked,) = client.peek_messages("q")
    assert client.delete_message("q", peeked.id)
    assert not client.delete_message("q", peeked.id)
    assert client.receive_message("q") is None


@pytest.mark.parametrize("stored", FOREIGN)
async def test_a_worker_buries_a_failed_message_with_a_foreign_id(
    server: Server, client: Rsmq, db: redis.Redis, stored: bytes
) -> None:
    async def fail(_: object) -> None:
        raise ValueError("no")

    put(db, stored)
    soon = Backoff(first_s=0, longest_s=0)
    worker = RsmqWorker("q", fail, url=server.url, max_receives=2, backoff=soon, vt=30)
    task = asyncio.create_task(worker.run())
    await eventually_async(lambda: db.zrange("rsmq:q-dead", 0, -1) == [stored], within_s=20)
    assert db.zcard("rsmq:q") == 0
    worker.stop()
    await task
