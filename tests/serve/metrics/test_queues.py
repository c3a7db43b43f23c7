from __future__ import annotations

import pytest

from tambomq.errors import ComponentFailed, StoreUnavailable
from tambomq.rsmq import Rsmq
from tambomq.serve.kqueue import KqueueView, kqueue_component
from tambomq.serve.metrics.queues import QueuesComponent
from tambomq.settings.load import KqueueSettings
from tests.serve.components import given, numbers, opened
from tests.servers import Server


async def test_the_numbers_of_all_queues_are_reported(server: Server, rsmq: Rsmq) -> None:
    rsmq.create_queue("orders")
    rsmq.send_messages("orders", ["a", "b", "c"])
    assert rsmq.receive_message("orders", vt=600) is not None
    component = QueuesComponent(given(server))
    async with opened(component):
        await component.check()
        found = numbers(await component.metrics())
    assert found["messages", "rsmq", "orders", "visible"] == 2
    assert found["messages", "rsmq", "orders", "in_flight"] == 1
    assert (found["entered", "rsmq", "orders"], found["received", "rsmq", "orders"]) == (3, 1)
    assert found["listed", "rsmq"] == 1
    assert found["reconnects",] == 0


async def test_a_server_that_is_away_has_no_numbers_until_it_is_back(
    private_server: Server,
) -> None:
    component = QueuesComponent(given(private_server))
    async with opened(component):
        private_server.kill()
        with pytest.raises(StoreUnavailable):
            await component.metrics()
        private_server.restart()
        assert numbers(await component.metrics())["listed", "rsmq"] == 0


def test_a_component_that_is_not_started_has_no_reader(server: Server) -> None:
    with pytest.raises(ComponentFailed):
        _ = QueuesComponent(given(server)).reader


async def test_a_kqueue_server_is_seen_once_it_is_started() -> None:
    component = kqueue_component(KqueueSettings(port=0))
    view = KqueueView(component, 100)
    assert (view.list_queues(), view.list_connections(5)) == ((), ())
    async with opened(component):
        assert (list(view.list_queues()), list(view.list_connections(5))) == ([], [])
