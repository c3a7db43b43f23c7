"""Selected letters are replayed or deleted; both can be stopped and undone."""

from __future__ import annotations

import pytest

from tambomq.chasqui import Job, Queue, UnrecoverableError, Worker
from tambomq.console.actions.model import LetterSelector, Operation
from tambomq.errors import ActionRefused
from tambomq.rsmq import AsyncRsmq
from tambomq.store.aio import AsyncStore
from tests.chasqui.conftest import working
from tests.console.actions.acting import actions_on, bury_messages, ended, kill_jobs
from tests.servers import Server, eventually_async


async def test_the_replay_of_one_letter_is_described_in_the_singular(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    await bury_messages(server, 1)
    selection = await actions.select(LetterSelector(queue="rsmq:orders"))
    assert (await ended(actions, actions.replay(selection.id))).text.startswith(
        "Replayed 1 letter of"
    )


async def test_a_replay_replays_the_selected_letters_only(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 6)
    groups = (await actions.summary()).groups
    selection = await actions.select(LetterSelector(groups=[groups[0].id]))
    replayed = await ended(actions, actions.replay(selection.id))
    assert (replayed.state, replayed.done, replayed.failed) == ("done", 3, 0)
    assert replayed.text == "Replayed 3 letters of chasqui:mail."
    async with Queue("mail", redis_url=server.url) as queue:
        counts = await queue.get_job_counts()
    assert (counts.waiting, counts.dead) == (3, 3)


async def test_undo_puts_back_the_messages_that_no_consumer_has_received(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    await bury_messages(server, 3)
    selection = await actions.select(LetterSelector(queue="rsmq:orders"))
    replayed = await ended(actions, actions.replay(selection.id))
    rsmq = AsyncRsmq(server.url)
    assert await rsmq.receive_message("orders") is not None
    undone = await actions.undo(replayed.id)
    assert undone.text.startswith("Put back 2 letters of rsmq:orders. 1 was taken")
    assert (await rsmq.get_queue_attributes("orders-dead")).msgs == 2
    await rsmq.close()
    with pytest.raises(ActionRefused, match="undone already"):
        await actions.undo(replayed.id)


@pytest.mark.parametrize("queue", ["chasqui:mail", "rsmq:orders"])
async def test_deleted_letters_can_be_put_back(
    server: Server, store: AsyncStore, queue: str
) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 3)
    await bury_messages(server, 3)
    before = await actions.letters(LetterSelector(queue=queue))
    selection = await actions.select(LetterSelector(queue=queue))
    with pytest.raises(ActionRefused, match="3 letters are selected, not 30"):
        actions.discard(selection.id, 30)
    deleted = await ended(actions, actions.discard(selection.id, 3))
    assert (deleted.text, deleted.done) == (f"Deleted 3 letters of {queue}.", 3)
    assert (await actions.summary(queue)).total == 0
    undone = await actions.undo(deleted.id)
    assert undone.text == f"Put back 3 letters of {queue}."
    after = await actions.letters(LetterSelector(queue=queue))
    assert sorted((row.id, row.error) for row in after.rows) == sorted(
        (row.id, row.error) for row in before.rows
    )


async def test_a_replay_stops_when_those_sent_ahead_fail(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 6)
    selection = await actions.select(LetterSelector(queue="chasqui:mail"))

    async def refuse(_: Job) -> None:
        raise UnrecoverableError("still broken")

    async with working(Worker("mail", refuse, redis_url=server.url)):
        stopped = await ended(actions, actions.replay(selection.id, ahead=2))
    assert (stopped.state, stopped.done) == ("stopped", 2)
    assert "of 2 sent ahead failed again" in stopped.text


async def test_a_replay_goes_on_when_those_sent_ahead_are_done(
    server: Server, store: AsyncStore
) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 6)
    selection = await actions.select(LetterSelector(queue="chasqui:mail"))

    async def accept(_: Job) -> None:
        return

    async with working(Worker("mail", accept, redis_url=server.url)):
        replayed = await ended(actions, actions.replay(selection.id, ahead=2))
    assert (replayed.state, replayed.done) == ("done", 6)


async def test_a_slow_replay_can_be_stopped(server: Server, store: AsyncStore) -> None:
    seen: list[Operation] = []
    actions = actions_on(store)
    actions._operations.on_change = seen.append
    await kill_jobs(server, 6)
    selection = await actions.select(LetterSelector(queue="chasqui:mail"))
    operation = actions.replay(selection.id, per_s=2)
    await eventually_async(lambda: any(each.done for each in seen))
    stopped = await actions.stop_operation(operation.id)
    assert stopped.state == "stopped"
    assert 0 < stopped.done < 6
    async with Queue("mail", redis_url=server.url) as queue:
        counts = await queue.get_job_counts()
    assert (counts.waiting, counts.dead) == (stopped.done, 6 - stopped.done)


async def test_an_operation_whose_queue_is_gone_says_why(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await bury_messages(server, 1)
    selection = await actions.select(LetterSelector(queue="rsmq:orders"))
    rsmq = AsyncRsmq(server.url)
    await rsmq.delete_queue("orders")
    await rsmq.close()
    stopped = await ended(actions, actions.replay(selection.id))
    assert stopped.state == "stopped"
    assert "orders" in stopped.text


async def test_an_empty_selection_and_a_rate_of_nothing_are_refused(store: AsyncStore) -> None:
    actions = actions_on(store)
    nothing = await actions.select(LetterSelector())
    with pytest.raises(ActionRefused, match="nothing is selected"):
        actions.replay(nothing.id)
    with pytest.raises(ActionRefused, match="more than 0 per second"):
        actions.replay(nothing.id, per_s=0)
