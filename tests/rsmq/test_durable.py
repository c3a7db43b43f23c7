"""Sends that are done once the disk or a replica has them."""

from __future__ import annotations

import asyncio

import pytest

from tambomq.errors import BatchIncomplete, InvalidFormat, JournalFull, NotDurable
from tambomq.journal.policy import JournalBounds
from tambomq.rsmq import AsyncRsmq
from tests.rsmq.conftest import Connect
from tests.servers import Server


def test_messages_that_the_disk_has_survive_a_crash(
    private_server: Server, connect_to: Connect
) -> None:
    client = connect_to(private_server.url)
    client.create_queue("orders")
    ids = [client.send_message("orders", "one", durable="disk")]
    ids += client.send_messages("orders", ["two", "three"], durable="disk")
    private_server.kill()
    private_server.restart()
    assert [message.id for message in client.peek_messages("orders")] == ids


def test_the_level_of_a_client_counts_unless_a_send_says_otherwise(
    private_server: Server, connect_to: Connect
) -> None:
    client = connect_to(private_server.url, durable="replicas:1", durable_timeout_s=0.05)
    client.create_queue("orders")
    with pytest.raises(NotDurable, match="0 of 1 replicas"):
        client.send_message("orders", "one")
    client.send_message("orders", "two", durable="memory")
    client.send_message("orders", "three", durable="disk")
    assert client.get_queue_attributes("orders").msgs == 3


def test_an_unconfirmed_send_says_the_ids_of_what_is_stored(
    private_server: Server, connect_to: Connect
) -> None:
    client = connect_to(private_server.url, durable_timeout_s=0.05)
    client.create_queue("orders")
    with pytest.raises(NotDurable) as one:
        client.send_message("orders", "one", durable="replicas:1")
    with pytest.raises(NotDurable) as more:
        client.send_messages("orders", ["two"] * 600, durable="replicas:1")
    stored = [message.id for message in client.peek_messages("orders", 1000)]
    assert [one.value.result, *more.value.result] == stored  # type: ignore[misc]


def test_a_batch_that_is_stored_in_part_is_not_taken_for_durable(
    private_server: Server, connect_to: Connect
) -> None:
    bounds = JournalBounds(max_entries=500)
    client = connect_to(
        private_server.url, journal=["orders"], journal_bounds=bounds, durable_timeout_s=0.05
    )
    client.create_queue("orders")
    with pytest.raises(NotDurable) as failed:
        client.send_messages("orders", ["one"] * 600, durable="replicas:1")
    assert isinstance(failed.value.__cause__, BatchIncomplete)
    assert failed.value.result == failed.value.__cause__.ids
    with pytest.raises(JournalFull):
        client.send_message("orders", "two", durable="disk")


def test_tasks_that_send_at_once_wait_together(private_server: Server) -> None:
    async def send() -> None:
        async with AsyncRsmq(private_server.url, durable="disk") as client:
            await client.create_queue("orders")
            sends = (client.send_message("orders", str(number)) for number in range(200))
            ids = await asyncio.gather(*sends)
            assert len(set(ids)) == 200

    asyncio.run(send())


def test_an_unknown_level_is_refused_before_anything_is_sent(connect: Connect) -> None:
    with pytest.raises(InvalidFormat, match="durable"):
        connect(durable="disc")
    client = connect()
    client.create_queue("orders")
    with pytest.raises(InvalidFormat, match="durable"):
        client.send_message("orders", "one", durable="replicas")
    assert client.get_queue_attributes("orders").msgs == 0
