"""Signatures and options: what is stored, what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

import pytest

from tambomq.errors import InvalidArguments, InvalidFormat, InvalidValue, UnrecoverableError
from tambomq.jobs import Jobs


def test_positional_parameters_defaults_and_rest_are_as_python_has_them() -> None:
    jobs, default = Jobs("q"), ["a"]

    @jobs.job
    def function(first: int, /, second: list[str] = default, **rest: float) -> Any:
        return first, second, rest

    assert function.call(1, x=2).payload == {"first": 1, "x": 2}
    arguments = function.arguments.arguments({"first": 1, "x": 2})
    first, second, rest = function.arguments.call(function.function, arguments)
    assert (first, rest) == (1, {"x": 2.0})
    assert second is default
    with pytest.raises(InvalidArguments, match=r"\$\.x: expected float, got str"):
        function.call(1, x="2")
    with pytest.raises(UnrecoverableError, match=r"\$\.x: expected float, got str"):
        function.arguments.arguments({"first": 1, "x": "2"})
    with pytest.raises(UnrecoverableError, match=r"\$: a key: expected str"):
        function.arguments.arguments({"first": 1, 2: 3.0})


def test_an_argument_that_cannot_be_stored_is_named_by_its_path() -> None:
    @Jobs("q").job
    def function(first: Any, second: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=r"\$\.second: object cannot be stored"):
        function.call(1, [object()])


def yielding() -> Iterator[int]:
    yield 1


async def yielding_later() -> AsyncIterator[int]:
    yield 1


class Callable:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    "made", [yielding, yielding_later, Callable(), Callable, partial(yielding), 3, "name"]
)
def test_a_generator_or_non_function_is_refused_by_the_decorator(made: Any) -> None:
    with pytest.raises(InvalidFormat, match="function"):
        Jobs("q").job(made)


def test_a_decorated_function_can_be_a_job() -> None:
    @Jobs("q").job
    @lru_cache
    def function(first: int) -> int:
        return first

    assert function.call(1).payload == {"first": 1}
    with pytest.raises(InvalidArguments, match="expected int"):
        function.call("1")


def test_an_annotation_that_names_nothing_says_so() -> None:
    jobs = Jobs("q")

    def function(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    made: Any = jobs.job(function)
    with pytest.raises(InvalidFormat, match="'Nowhere' is not defined"):
        made.call(1)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": "5"},
        {"attempts": 0},
        {"retry_on": (3,)},
        {"retry_on": KeyError},
        {"backoff": "slow"},
    ],
)
def test_options_of_a_function_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises((InvalidValue, InvalidFormat)):
        Jobs("q").job(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"delay_s": -1},
        {"delay_s": "5"},
        {"delay_s": float("nan")},
        {"delay_s": timedelta(seconds=5)},
        {"debounce_s": 5},
        {"throttle_s": -1, "job_id": "x"},
        {"debounce_s": 5, "throttle_s": 5, "job_id": "x"},
        {"debounce_s": 5, "delay_s": 5, "job_id": "x"},
        {"throttle_s": 5, "delay_s": 5, "job_id": "x"},
    ],
)
def test_options_of_an_add_are_checked(options: dict[str, Any]) -> None:
    @Jobs("q").job
    async def run() -> None: ...

    with pytest.raises((InvalidValue, InvalidFormat)):
        run.options(**options)


def test_a_method_is_refused_where_it_is_written() -> None:
    jobs = Jobs("q")
    with pytest.raises(InvalidFormat, match="outside of classes"):

        class Shop:
            @jobs.job
            def order(self, sku: str) -> None: ...

    class Box:
        @jobs.job
        def close(lid: str) -> str:  # noqa: N805  (called by its name, and has no object)
            return lid

    @jobs.job(name="late")
    def order(self: str) -> str:
        return self

    assert jobs.test_job(order, self="a").run_sync().result == "a"
    assert jobs.test_job(Box.close, lid="b").run_sync().result == "b"


def test_a_parameter_of_any_type_may_be_an_object() -> None:
    jobs = Jobs("q")

    @jobs.job
    def keep(value: object) -> object:
        return value

    run = jobs.test_job(keep, value=[1, "two"])  # type: ignore[call-arg]  # mypy takes it for ctx
    assert run.run_sync().result == [1, "two"]
