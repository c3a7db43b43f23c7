"""Single messages are sent, run now, edited, cancelled and deleted."""

from __future__ import annotations

import pytest

from tambomq.chasqui import Queue
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused, InvalidFormat, MessageTooLong, QueueNotFound
from tambomq.kqueue import AsyncConsumer, KqueueServer
from tambomq.rsmq import AsyncRsmq
from tambomq.store.aio import AsyncStore
from tests.console.actions.acting import MAIL, ORDERS, actions_on, bury_messages, kill_jobs
from tests.servers import Server

HOUR_S = 3600.0


async def test_a_job_is_sent_with_its_options(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    sent = await actions.send(
        MAIL, '{"to": "ada"}', "json", name="welcome", delay_s=HOUR_S, job_id="w-7", attempts=3
    )
    async with Queue("mail", redis_url=server.url) as queue:
        job = await queue.get_job("w-7")
    assert sent.id == "w-7"
    assert job is not None
    assert (job.state, job.name, job.data) == ("delayed", "welcome", {"to": "ada"})
    with pytest.raises(ActionRefused, match="already has a job with the id 'w-7'"):
        await actions.send(MAIL, "x", name="welcome", delay_s=HOUR_S, job_id="w-7")


async def test_messages_are_sent_to_every_protocol(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    with pytest.raises(QueueNotFound):
        await actions.send(ORDERS, "too early")
    rsmq = AsyncRsmq(server.url)
    await rsmq.create_queue("orders")
    sent = await actions.send(ORDERS, "aGk=", "base64")
    received = await rsmq.receive_message("orders")
    assert received is not None
    assert (received.id, received.body) == (sent.id, b"hi")
    await rsmq.close()
    with pytest.raises(ActionRefused, match="gomq has no attempts"):
        await actions.send(QueueRef("gomq", "ticks"), "x", attempts=3)
    with pytest.raises(InvalidFormat, match="JSON"):
        await actions.send(MAIL, "{", "json")


async def test_a_message_reaches_the_subscribers_of_a_kqueue_queue(store: AsyncStore) -> None:
    async def none() -> list[QueueRef]:
        return []

    from tambomq.console.actions.actions import Actions  # noqa: PLC0415  (beside its use)

    chat = QueueRef("kqueue", "chat")
    with pytest.raises(ActionRefused, match="use the console of `tambo serve`"):
        await actions_on(store).send(chat, "hello")
    async with KqueueServer(port=0) as broker, AsyncConsumer(*broker.address) as consumer:
        await consumer.subscribe("chat")
        actions = Actions(store, none, kqueue=broker.address)
        # The subscription may be on its way still: nothing is kept for late subscribers.
        message = None
        while message is None:
            await actions.send(chat, "hello")
            message = await consumer.receive(timeout_s=0.5)
    assert message.body == b"hello"


async def test_a_delayed_job_is_due_now_and_a_dead_one_runs_again(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    [dead] = await kill_jobs(server, 1)
    later = await actions.send(MAIL, "1", "json", name="n", delay_s=HOUR_S)
    assert later.id is not None
    async with Queue("mail", redis_url=server.url) as queue:
        await actions.run_now(MAIL, dead.id)
        await actions.run_now(MAIL, later.id)
        replayed, delayed = await queue.get_job(dead.id), await queue.get_job(later.id)
        assert replayed is not None
        assert delayed is not None
        assert replayed.state == "waiting"
        assert delayed.due_at_ms is not None
        assert delayed.due_at_ms <= delayed.created_at_ms + 60_000  # type: ignore[operator]
        with pytest.raises(ActionRefused, match="neither delayed nor dead"):
            await actions.run_now(MAIL, dead.id)


async def test_a_received_rsmq_message_is_not_made_visible_under_its_consumer(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    rsmq = AsyncRsmq(server.url)
    await rsmq.create_queue("orders")
    later = await rsmq.send_message("orders", "later", delay=HOUR_S)
    await actions.run_now(ORDERS, later)
    assert (await rsmq.receive_message("orders", vt=60)) is not None
    with pytest.raises(ActionRefused, match="visibility timeout"):
        await actions.run_now(ORDERS, later)
    await rsmq.close()


async def test_a_delayed_job_is_edited_in_one_step(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await actions.send(MAIL, "1", "json", name="n", delay_s=HOUR_S, job_id="mine")
    await actions.edit_and_run(MAIL, "mine", '{"n": 2}', "json")
    async with Queue("mail", redis_url=server.url) as queue:
        job = await queue.get_job("mine")
        assert job is not None
        assert (job.state, job.data, job.name) == ("delayed", {"n": 2}, "n")
        assert await queue.cancel_delayed("mine")


async def test_an_rsmq_message_is_edited_until_it_is_received(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    rsmq = AsyncRsmq(server.url)
    await rsmq.create_queue("orders", maxsize=1024)
    id = await rsmq.send_message("orders", "draft", delay=HOUR_S)
    with pytest.raises(MessageTooLong):
        await actions.edit_and_run(ORDERS, id, "x" * 1025, "text")
    await actions.edit_and_run(ORDERS, id, "mended", "text")
    received = await rsmq.receive_message("orders", vt=60)
    assert received is not None
    assert (received.id, received.body) == (id, b"mended")
    with pytest.raises(ActionRefused, match="was received"):
        await actions.edit_and_run(ORDERS, id, "too late", "text")
    with pytest.raises(ActionRefused, match="cannot be edited any more"):
        await actions.edit_and_run(ORDERS, "0" * 32, "x", "text")
    await rsmq.close()


async def test_dead_letters_are_edited_and_run_again(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    [dead] = await kill_jobs(server, 1)
    [message] = await bury_messages(server, 1)
    await actions.edit_and_run(MAIL, dead.id, '"mended"', "json")
    await actions.edit_and_run(ORDERS, message, "mended", "text")
    async with Queue("mail", redis_url=server.url) as queue:
        job = await queue.get_job(dead.id)
    assert job is not None
    assert (job.state, job.data) == ("waiting", "mended")
    rsmq = AsyncRsmq(server.url)
    received = await rsmq.receive_message("orders")
    assert received is not None
    assert (received.id, received.body) == (message, b"mended")
    await rsmq.close()


async def test_jobs_are_cancelled_and_deleted_once(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    async with Queue("mail", redis_url=server.url) as queue:
        first, second = await queue.add("n", 1), await queue.add("n", 2)
        await actions.cancel(MAIL, first.id, "not wanted")
        await actions.delete(MAIL, second.id)
        assert (await queue.get_job_counts()).waiting == 0
    with pytest.raises(ActionRefused, match="not in chasqui:mail any more"):
        await actions.cancel(MAIL, first.id)
    with pytest.raises(ActionRefused, match="not in chasqui:mail any more"):
        await actions.delete(MAIL, second.id)


async def test_rsmq_messages_are_deleted_also_among_the_dead(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    [dead] = await bury_messages(server, 1)
    rsmq = AsyncRsmq(server.url)
    alive = await rsmq.send_message("orders", "x")
    for id in (alive, dead):
        assert (await actions.delete(ORDERS, id)).count == 1
        with pytest.raises(ActionRefused, match="not in rsmq:orders any more"):
            await actions.delete(ORDERS, id)
    await rsmq.close()
