"""Handlers: the functions of the user that run jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from tambomq.chasqui.job import Job
from tambomq.errors import InvalidFormat
from tambomq.failures import from_elsewhere

Handler: TypeAlias = Callable[[Job], Any] | Callable[[Job], Awaitable[Any]]


def check_handler(handler: Handler) -> Handler:
    """Return *handler*; raise `InvalidFormat` if it cannot be called."""
    if not callable(handler):
        raise InvalidFormat("handler", handler, "a function")
    return handler


def is_async(handler: Handler) -> bool:
    """Whether *handler* is a coroutine function, or an object with an async ``__call__``."""
    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


def call_in_thread(handler: Handler, job: Job) -> Any:
    """Call a plain *handler*; the result travels back to the loop in a future."""
    try:
        return handler(job)
    except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
        raise from_elsewhere(error) from error
