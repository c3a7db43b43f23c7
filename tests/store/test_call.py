"""Calls, scripts and plans as values."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import QueueNotFound
from tambomq.store.call import Arg, Call, Plan, Script, load_script, only, pack_alike, results

SCRIPT = Script("count", "return 1", "c0ffee")


def test_a_script_is_known_by_the_hash_of_its_source() -> None:
    script = load_script("tambomq.rsmq.ops", "delete")
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


@given(
    st.lists(st.binary(max_size=5) | st.text("aé\0", max_size=5) | st.integers(), min_size=1),
    st.integers(0, 300).flatmap(
        lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=9)
    ),
)
def test_words_of_one_length_are_packed_as_any_others(words: list[Arg], last: list[bytes]) -> None:
    assert pack_alike(words, last) == hiredis.pack_command((*words, *last))


def test_words_of_several_lengths_and_none_are_not_packed() -> None:
    assert pack_alike(["ECHO"], [b"a", b"bc"]) is None
    assert pack_alike(["ECHO"], []) is None


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


def test_a_script_has_the_parts_it_needs_before_it_and_each_once() -> None:
    script = load_script("tambomq.chasqui.ops", "bury", "ackdel_plain")
    parts = ("ackdel_plain", "write_event", "is_owner", "is_holder", "stream_cap", "bury")
    indexes = [script.source.index(f"-- {name}: ") for name in parts]
    assert indexes == sorted(indexes)
    assert script.source.count("-- write_event: ") == 1
    assert script.name == "bury"
    assert script.sha == hashlib.sha1(script.source.encode(), usedforsecurity=False).hexdigest()


def test_a_part_comes_after_the_parts_it_needs() -> None:
    source = load_script("tambomq.rsmq.bulk", "lease_prune").source
    indexes = [source.index(f"-- {name}: ") for name in ("member", "receipts", "claimed")]
    assert indexes == sorted(indexes)


def test_a_variant_of_a_part_is_chosen_by_the_caller() -> None:
    native, plain = (
        load_script("tambomq.chasqui.ops", "done", f"ackdel_{kind}") for kind in ("native", "plain")
    )
    assert "'XACKDEL'" in native.source
    assert "'XACKDEL'" not in plain.source
    assert native.sha != plain.sha
    with pytest.raises(LookupError, match=r"no part ackdel_\*"):
        load_script("tambomq.chasqui.ops", "done")
    with pytest.raises(LookupError, match=r"claim\.lua needs no ackdel_plain"):
        load_script("tambomq.chasqui.ops", "claim", "ackdel_plain")


@pytest.mark.parametrize("package", ["tambomq.rsmq.bulk", "tambomq.chasqui.bulk"])
def test_a_part_that_a_protocol_does_not_have_is_shared_by_all(package: str) -> None:
    assert "local function digest(body)" in load_script(package, "lease_claim").source


def test_parts_that_need_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = tmp_path / "planted" / "scripts" / "parts"
    parts.mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").write_text("")
    (parts.parent / "work.lua").write_text("-- work: work.\n-- NEEDS one\n")
    (parts / "one.lua").write_text("-- one: one.\n-- NEEDS two\n")
    (parts / "two.lua").write_text("-- two: two.\n-- NEEDS one\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(LookupError, match="parts need each other: one, two, one"):
        load_script("planted", "work")


def test_a_shebang_stays_the_first_line_of_a_script_with_parts() -> None:
    source = load_script("tambomq.chasqui.ops", "done", "ackdel_plain").source
    assert source.startswith("#!lua flags=allow-oom\n-- ackdel_plain: ")
    assert source.count("#!lua") == 1


def test_a_command_may_want_words_before_its_keys() -> None:
    call = Call(("XREAD", "COUNT", 5, "STREAMS"), ("a key", "b"), ("0-0", "$"), decode=list)
    assert call.parts == ("XREAD", "COUNT", 5, "STREAMS", "a key", "b", "0-0", "$")
    assert call.parts_with_source == call.parts
