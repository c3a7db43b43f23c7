"""Servers and clients for tests, on both event loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

from tests.kqueue.serving import LOOPS, Served
from tests.kqueue.twins import KINDS, consuming, producing

Serve: TypeAlias = Callable[..., Served]


@pytest.fixture(params=list(LOOPS))
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """A function that starts a server with the options given, on each kind of loop in turn."""
    with ExitStack() as running:

        def start(**options: Any) -> Served:
            return running.enter_context(Served(request.param, **options))

        yield start


@pytest.fixture
def served(serve: Serve) -> Served:
    """A server with all defaults, on each kind of loop in turn."""
    return serve()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The blocking clients, then the asyncio ones."""
    return str(request.param)


@pytest.fixture
def producer(kind: str, served: Served) -> Iterator[Any]:
    """A producer of each kind in turn."""
    with producing(kind, served.port) as client:
        yield client


@pytest.fixture
def consumer(kind: str, served: Served) -> Iterator[Any]:
    """A consumer of each kind in turn."""
    with consuming(kind, served.port) as client:
        yield client
