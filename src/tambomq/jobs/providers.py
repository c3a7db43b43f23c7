"""Dependency injection by type: a provider makes the object for each parameter of its type.

A provider is a function that returns the object, or a generator that yields it once and cleans up
after. It may itself ask for others, and for the `Context`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import msgspec

from tambomq.errors import InvalidFormat
from tambomq.jobs.context import Context

RUN: Final = "run"
WORKER: Final = "worker"
_YIELDED: Final = ("Iterator", "Generator", "AsyncIterator", "AsyncGenerator")


class Provider(msgspec.Struct, frozen=True):
    """One provider: the type it provides, how, and for how long."""

    kind: Any
    make: Callable[..., Any]
    scope: str
    needs: dict[str, Any]
    """Its parameters and their types."""


def provider(function: Callable[..., Any], scope: str) -> Provider:
    """Return *function* as a provider; raise `InvalidFormat` if it names no type."""
    if scope not in (RUN, WORKER):
        raise InvalidFormat("scope", scope, f"{RUN} or {WORKER}")
    hints = typing.get_type_hints(function)
    kind, make = hints.pop("return", None), function
    if inspect.isasyncgenfunction(function):
        kind, make = _yielded(function, kind), asynccontextmanager(function)
    elif inspect.isgeneratorfunction(function):
        kind, make = _yielded(function, kind), contextmanager(function)
    if kind is None:
        raise InvalidFormat("provider", function, "its return annotation says what it provides")
    for name in inspect.signature(function).parameters:
        if name not in hints:
            raise InvalidFormat("provider", function, f"parameter {name} has no annotation")
    return Provider(kind, make, scope, hints)


def _yielded(function: Callable[..., Any], kind: Any) -> Any:
    """Return T of ``Iterator[T]`` and its like."""
    if typing.get_origin(kind) is None or typing.get_origin(kind).__name__ not in _YIELDED:
        raise InvalidFormat("provider", function, "its annotation is Iterator[…] of what it yields")
    return typing.get_args(kind)[0]


class Resolver:
    """Makes the objects that runs ask for; those with the scope of the worker only once."""

    def __init__(self, providers: Mapping[Any, Provider]) -> None:
        self._providers = providers
        self._kept: dict[Any, Any] = {}
        self._stack = AsyncExitStack()

    async def open(self, kinds: Mapping[Any, Provider] | None = None) -> None:
        """Make everything of the worker's scope."""
        for each in (kinds or self._providers).values():
            if each.scope == WORKER:
                await self._kept_of(each)

    async def close(self) -> None:
        """Clean up what was made for the worker, the newest first."""
        self._kept.clear()
        await self._stack.aclose()

    async def resolve(
        self, wanted: Mapping[str, Any], context: Context, stack: AsyncExitStack
    ) -> dict[str, Any]:
        """Return an object for each name of *wanted*; *stack* cleans up after the run."""
        made: dict[Any, Any] = {Context: context}
        return {name: await self._of(kind, made, stack) for name, kind in wanted.items()}

    async def _of(self, kind: Any, made: dict[Any, Any], stack: AsyncExitStack) -> Any:
        if kind in made:
            return made[kind]
        found = self._providers[kind]
        if found.scope == WORKER:
            return await self._kept_of(found)
        needs = {name: await self._of(each, made, stack) for name, each in found.needs.items()}
        made[kind] = await _made(found, needs, stack)
        return made[kind]

    async def _kept_of(self, found: Provider) -> Any:
        if found.kind not in self._kept:
            needs = {
                name: await self._kept_of(self._providers[kind])
                for name, kind in found.needs.items()
            }
            self._kept[found.kind] = await _made(found, needs, self._stack)
        return self._kept[found.kind]


def check_needs(providers: Mapping[Any, Provider], new: Provider) -> None:
    """Raise `InvalidFormat` if *new* needs a type without a provider, or with a shorter scope."""
    for name, kind in new.needs.items():
        if kind is Context and new.scope == RUN:
            continue
        found = providers.get(kind)
        if found is None or (new.scope == WORKER and found.scope == RUN):
            of = "" if new.scope == RUN else " for a worker"
            rule = f"nothing provides its parameter {name} ({kind!r}){of}; register that first"
            raise InvalidFormat("provider", new.make, rule)


async def _made(found: Provider, needs: dict[str, Any], stack: AsyncExitStack) -> Any:
    value = found.make(**needs)
    if hasattr(value, "__aenter__") and _is_generator(found):
        return await stack.enter_async_context(value)
    if _is_generator(found):
        return stack.enter_context(value)
    return await value if inspect.isawaitable(value) else value


def _is_generator(found: Provider) -> bool:
    function = inspect.unwrap(found.make)
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
