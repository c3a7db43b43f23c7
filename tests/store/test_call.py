"""Calls, scripts and plans as values."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tambomq.errors import QueueNotFound
from tambomq.store.call import Call, Plan, Script, load_script, only, results

SCRIPT = Script("count", "return 1", "c0ffee")


def test_a_script_is_known_by_the_hash_of_its_source() -> None:
    script = load_script("tambomq.rsmq", "delete")
    assert script.name == "delete"
    assert "-- delete: " in script.source
    assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


def test_a_command_is_its_words_its_keys_and_its_arguments() -> None:
    call = Call("XGROUP CREATE", ("stream",), ("group", 0, 1.5, b"\0"), decode=bool)
    assert call.parts == ("XGROUP", "CREATE", "stream", "group", 0, 1.5, b"\0")
    assert call.parts_with_source == call.parts


def test_a_script_is_called_by_its_name_or_by_its_source() -> None:
    call = Call(SCRIPT, ("a", "b"), ("x",), decode=bool)
    assert call.parts == ("EVALSHA", "c0ffee", 2, "a", "b", "x")
    assert call.parts_with_source == ("EVAL", "return 1", 2, "a", "b", "x")


def test_a_call_is_not_repeatable_unless_it_says_so() -> None:
    assert not Call("INCR", ("k",), (), decode=int).repeatable


def test_a_call_cannot_be_changed() -> None:
    call = Call("GET", ("k",), (), decode=bool)
    with pytest.raises(AttributeError):
        call.verb = "DEL"  # type: ignore[misc]


def test_results_are_the_outcomes_when_all_are_good() -> None:
    assert results([1, None, b""]) == [1, None, b""]


def test_results_raise_the_first_error() -> None:
    with pytest.raises(QueueNotFound, match="first"):
        results([1, QueueNotFound("first"), QueueNotFound("second")])


def test_the_plan_of_one_call_comes_to_its_outcome() -> None:
    call = Call("GET", ("k",), (), decode=bool)
    plan: Plan[Any] = only(call)
    assert plan.send(None) == (call,)  # type: ignore[arg-type]
    with pytest.raises(StopIteration) as end:
        plan.send([True])
    assert end.value.value is True


def test_a_script_has_its_parts_before_it_in_their_order() -> None:
    alone = load_script("tambomq.chasqui", "add")
    joined = load_script("tambomq.chasqui", "add", "note", "room")
    places = [joined.source.index(f"-- {name}: ") for name in ("note", "room", "add")]
    assert places == sorted(places)
    assert joined.source.endswith(alone.source)
    assert joined.name == "add"
    assert joined.sha == hashlib.sha1(joined.source.encode(), usedforsecurity=False).hexdigest()
    assert joined.sha != alone.sha


@pytest.mark.parametrize("package", ["tambomq.rsmq", "tambomq.chasqui"])
def test_a_part_that_a_package_does_not_have_is_the_store_s(package: str) -> None:
    assert "local function digest(body)" in load_script(package, "lease_claim", "digest").source
    with pytest.raises(FileNotFoundError):
        load_script(package, "lease_claim", "nowhere")


def test_a_shebang_stays_the_first_line_of_a_script_with_parts() -> None:
    alone = load_script("tambomq.chasqui", "done")
    joined = load_script("tambomq.chasqui", "done", "note", "owns")
    shebang = alone.source.partition("\n")[0]
    assert shebang.startswith("#!lua")
    assert joined.source.startswith(f"{shebang}\n-- note: ")
    assert joined.source.count("#!lua") == 1


def test_a_command_may_want_words_before_its_keys() -> None:
    call = Call(("XREAD", "COUNT", 5, "STREAMS"), ("a key", "b"), ("0-0", "$"), decode=list)
    assert call.parts == ("XREAD", "COUNT", 5, "STREAMS", "a key", "b", "0-0", "$")
    assert call.parts_with_source == call.parts
