"""RSMQ clients for tests: a test that uses `client` runs on the blocking and the asyncio one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from tambomq.rsmq import Rsmq
from tests.rsmq.twins import KINDS, connected
from tests.servers import Server

Connect = Callable[..., Rsmq]


@pytest.fixture(params=KINDS)
def connect_to(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """A function from a URL and options to a client, which is closed after the test."""
    with ExitStack() as stack:

        def connect(url: str, **options: Any) -> Rsmq:
            return stack.enter_context(connected(request.param, url, **options))

        yield connect


@pytest.fixture
def connect(connect_to: Connect, server: Server) -> Connect:
    """A function from options to a client of the emptied server."""
    return partial(connect_to, server.url)


@pytest.fixture
def client(connect: Connect) -> Rsmq:
    """A client of an empty server: in turn the blocking one and the asyncio one."""
    return connect()
