"""Signatures and options: what is stored, what is refused."""

from __future__ import annotations

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
    with pytest.raises(InvalidArguments, match="expected float, got str"):
        function.call(1, x="2")
    with pytest.raises(UnrecoverableError, match="expected float, got str"):
        function.arguments.arguments({"first": 1, "x": "2"})


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
        {"backoff": "slow"},
    ],
)
def test_options_of_a_function_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises((InvalidValue, InvalidFormat)):
        Jobs("q").job(**options)


@pytest.mark.parametrize(
    "options",
    [
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
