"""The decorator that `Jobs.job`, `Jobs.cron` and `Jobs.every` return; keeps the signature."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isroutine, unwrap
from typing import Any, Concatenate, overload

from tambomq.errors import InvalidFormat
from tambomq.jobs.context import Context
from tambomq.jobs.function import AsyncJobFunction, JobFunction, P, R, SyncJobFunction
from tambomq.jobs.options import FunctionOptions


class JobDecorator:
    """Makes a function a job with the options that it was made with.

    A first parameter of type `Context` is not part of the signature of ``add``.
    """

    def __init__(
        self,
        define: Callable[[str, Callable[..., Any], FunctionOptions], Any],
        name: str | None,
        options: FunctionOptions,
    ) -> None:
        self._define, self._name, self._options = define, name, options

    # A coroutine function is a function too: the first that fits is meant.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> JobFunction[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJobFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> JobFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncJobFunction[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Define the job."""
        if isinstance(function, JobFunction):
            raise InvalidFormat("job", function.name, "defined once: use one decorator")
        # A decorated function may be an object, such as the one that lru_cache makes.
        if not isroutine(unwrap(function)):
            raise InvalidFormat("job", function, "a function: write one that calls it")
        return self._define(self._name or function.__name__, function, self._options)
