"""Batches of calls that tasks make in the same turn, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tambomq.errors import QueueNotFound, StoreUnavailable
from tambomq.store.aio import AsyncStore
from tambomq.store.batcher import MAX_CALLS, Batcher, Waiter, fail, give, give_all
from tambomq.store.call import Call


class FakeStore:
    """Replies to a call with its keys, once the test lets it."""

    def __init__(self) -> None:
        self.alone: list[str] = []
        self.may_reply = asyncio.Event()

    async def run(self, call: Call[Any]) -> str:
        (key,) = call.keys
        self.alone.append(key)
        # No server replies in the same turn.
        await asyncio.sleep(0)
        await self.may_reply.wait()
        if key == "bad":
            raise QueueNotFound(key)
        return key


class Client:
    """A batcher on a fake store that records its batches."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.batches: list[tuple[str, list[str]]] = []
        self.error: Exception | None = None
        self._batcher = Batcher(cast("AsyncStore", self.store))

    async def run(self, key: str, group: str = "g") -> str:
        return await self._batcher.run(Call("ECHO", (key,), (), str), group, self._together)

    def start(self, *keys: str, group: str = "g") -> list[asyncio.Task[str]]:
        return [asyncio.ensure_future(self.run(key, group)) for key in keys]

    async def _together(self, group: str, waiters: Sequence[Waiter]) -> None:
        self.batches.append((group, [call.keys[0] for call, _ in waiters]))
        await self.store.may_reply.wait()
        if self.error:
            raise self.error
        give_all(waiters, [call.keys[0] for call, _ in waiters])


@pytest.fixture
async def client() -> Client:
    return Client()


async def turns() -> None:
    """Run the loop until nothing is left to do without a reply."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_lone_call_is_sent_in_its_own_turn(client: Client) -> None:
    (task,) = client.start("a")
    await asyncio.sleep(0)
    assert client.store.alone == ["a"]
    client.store.may_reply.set()
    assert await task == "a"
    assert client.batches == []


async def test_calls_behind_the_first_leave_together_in_their_order(client: Client) -> None:
    tasks = client.start("a", "b", "c", "d")
    await turns()
    assert (client.store.alone, client.batches) == (["a"], [("g", ["b", "c", "d"])])
    client.store.may_reply.set()
    assert await asyncio.gather(*tasks) == ["a", "b", "c", "d"]


async def test_calls_of_different_groups_are_never_one_batch(client: Client) -> None:
    client.store.may_reply.set()
    tasks = client.start("a", "b", "c") + client.start("d", "e", group="h")
    assert await asyncio.gather(*tasks) == list("abcde")
    assert client.batches == [("g", ["b", "c"]), ("h", ["d", "e"])]


async def test_a_batch_of_one_is_sent_as_it_is(client: Client) -> None:
    tasks = client.start("a", "b")
    await turns()
    assert (client.store.alone, client.batches) == (["a", "b"], [])
    client.store.may_reply.set()
    assert await asyncio.gather(*tasks) == ["a", "b"]


async def test_no_batch_is_larger_than_allowed(client: Client) -> None:
    client.store.may_reply.set()
    keys = [str(n) for n in range(5 * MAX_CALLS)]
    assert await asyncio.gather(*client.start(*keys)) == keys
    sizes = [len(batch) for _, batch in client.batches]
    assert sum(sizes) + len(client.store.alone) == len(keys)
    assert max(sizes) <= MAX_CALLS


async def test_after_the_last_reply_a_call_is_alone_again(client: Client) -> None:
    client.store.may_reply.set()
    await asyncio.gather(*client.start("a", "b", "c"))
    (task,) = client.start("d")
    assert await task == "d"
    assert client.store.alone == ["a", "d"]


async def test_a_call_cancelled_before_it_was_sent_is_left_out(client: Client) -> None:
    tasks = client.start("a", "b", "c", "d")
    await asyncio.sleep(0)
    tasks[2].cancel()
    await turns()
    assert client.batches == [("g", ["b", "d"])]
    client.store.may_reply.set()
    assert await asyncio.gather(tasks[0], *tasks[1:4:2]) == ["a", "b", "d"]


async def test_a_cancelled_task_does_not_disturb_its_batch(client: Client) -> None:
    tasks = client.start("a", "b", "c")
    await turns()
    tasks[1].cancel()
    client.store.may_reply.set()
    assert await asyncio.gather(*tasks[::2]) == ["a", "c"]
    (task,) = client.start("d")
    await task
    assert client.store.alone == ["a", "d"]


async def test_an_error_of_a_batch_is_raised_in_each_task_as_its_own(client: Client) -> None:
    client.error = StoreUnavailable("no server")
    client.store.may_reply.set()
    outcomes = await asyncio.gather(*client.start("a", "b", "c"), return_exceptions=True)
    assert outcomes[0] == "a"
    assert [str(error) for error in outcomes[1:]] == ["no server"] * 2
    assert outcomes[1] is not outcomes[2]


async def test_an_error_keeps_its_attributes_when_it_is_copied() -> None:
    future = asyncio.get_running_loop().create_future()
    fail([(Call("ECHO", (), (), str), future)], QueueNotFound("orders"))
    with pytest.raises(QueueNotFound, match="orders") as caught:
        await future
    assert caught.value.queue == "orders"


async def test_a_result_that_is_an_error_is_raised() -> None:
    future = asyncio.get_running_loop().create_future()
    give((Call("ECHO", (), (), str), future), QueueNotFound("orders"))
    with pytest.raises(QueueNotFound):
        await future


async def test_the_error_of_a_lone_call_is_its_own(client: Client) -> None:
    client.store.may_reply.set()
    outcomes = await asyncio.gather(*client.start("bad", "b", "c"), return_exceptions=True)
    assert isinstance(outcomes[0], QueueNotFound)
    assert outcomes[1:] == ["b", "c"]


def test_each_event_loop_has_its_own_batches() -> None:
    client = Client()

    async def main() -> list[str]:
        client.store.may_reply = asyncio.Event()
        client.store.may_reply.set()
        return await asyncio.gather(*client.start("a", "b", "c"))

    assert [asyncio.run(main()) for _ in range(2)] == [["a", "b", "c"]] * 2
    assert client.store.alone == ["a", "a"]
