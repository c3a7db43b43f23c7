"""The body of one selected dead letter is shown, and replaced while the letter is replayed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import redis

from tambomq.chasqui import Queue
from tambomq.chasqui.wire.envelope import decode_envelope, encode_envelope
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.console.actions.model import LetterSelector
from tambomq.errors import ActionRefused
from tambomq.rsmq import AsyncRsmq
from tambomq.store.aio import AsyncStore
from tests.console.actions.acting import actions_on, bury_messages, kill_jobs
from tests.servers import Server

DLQ = "{chasqui:mail}:dlq"


async def test_one_letter_is_edited_and_replayed(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    jobs = await kill_jobs(server, 2)
    both = await actions.select(LetterSelector(queue="chasqui:mail"))
    with pytest.raises(ActionRefused, match="one letter is edited at a time, and 2 are selected"):
        await actions.edit_and_replay(both.id, "1", "json")
    one = await actions.select(LetterSelector(queue="chasqui:mail", ids=[jobs[0].id]))
    await actions.edit_and_replay(one.id, '"mended"', "json")
    async with Queue("mail", redis_url=server.url) as queue:
        job = await queue.get_job(jobs[0].id)
    assert job is not None
    assert (job.state, job.data) == ("waiting", "mended")


async def test_the_letter_that_is_selected_is_edited_whatever_has_the_same_id(
    server: Server, store: AsyncStore, db: redis.Redis
) -> None:
    actions = actions_on(store)
    [job] = await kill_jobs(server, 1)
    # Another engine, or an id that was used again: a second letter of a job with this id.
    entries: Any = db.xrange(DLQ)
    [(_, fields)] = entries
    twin = msgspec.structs.replace(decode_envelope(fields[b"d"]), payload=encode_payload("twin"))
    db.xadd(DLQ, {**fields, b"d": encode_envelope(twin)})
    rows = (await actions.letters(LetterSelector(queue="chasqui:mail"))).rows
    assert [row.id for row in rows] == [job.id, job.id]
    letters = [row.letter_id for row in rows]
    older = await actions.select(LetterSelector(queue="chasqui:mail", ids=[str(letters[1])]))
    assert (await actions.selected_body(older.id)).msgpack == '{\n  "n": 0\n}'
    result = await actions.edit_and_replay(older.id, '"mended"', "json")
    assert result.id == job.id
    left = (await actions.letters(LetterSelector(queue="chasqui:mail"))).rows
    assert [row.letter_id for row in left] == letters[:1]
    async with Queue("mail", redis_url=server.url) as queue:
        counts = await queue.get_job_counts()
    assert (counts.waiting, counts.dead) == (1, 1)
    with pytest.raises(ActionRefused, match="is gone"):
        await actions.selected_body(older.id)
    with pytest.raises(ActionRefused, match="is gone"):
        await actions.edit_and_replay(older.id, "1", "json")


async def test_the_body_of_a_dead_message_is_the_selected_ones(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    ids = await bury_messages(server, 2)
    one = await actions.select(LetterSelector(queue="rsmq:orders", ids=[ids[1]]))
    assert (await actions.selected_body(one.id)).text == "order 1"
    assert (await actions.edit_and_replay(one.id, "order 7", "text")).id == ids[1]
    rsmq = AsyncRsmq(server.url)
    received = await rsmq.receive_message("orders")
    await rsmq.close()
    assert received is not None
    assert (received.id, received.text) == (ids[1], "order 7")
    with pytest.raises(ActionRefused, match="is gone"):
        await actions.selected_body(one.id)
