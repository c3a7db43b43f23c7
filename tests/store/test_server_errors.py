"""Temporary refusals of a server are retried; the last one becomes the error."""

from __future__ import annotations

import pickle
import re
import threading
from contextlib import ExitStack
from pathlib import Path

import hiredis
import pytest

import tambomq
from tambomq.errors import StoreError, StoreFull, StoreReadOnly, StoreUnavailable, WrongType
from tambomq.store.call import Call
from tambomq.store.server_errors import ERRORS, is_transient, translate
from tests.servers import Server
from tests.servers.refusal import REFUSALS, Refusal, refusing_writes
from tests.store.conftest import Open
from tests.store.twins import add, get, incr

TRANSIENT = {
    "LOADING", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "UNBLOCKED",
    "READONLY", "MISCONF", "NOREPLICAS", "MAXCLIENTS",
}  # fmt: skip


@pytest.mark.parametrize("code", [*ERRORS, "ERR", "BUSYGROUP", "NOGROUP", "EXECABORT"])
def test_only_what_the_server_says_before_it_does_anything_is_repeated(code: str) -> None:
    error = hiredis.ReplyError(f"{code} because")
    assert is_transient(error) == (code in TRANSIENT)
    assert isinstance(translate(error), StoreUnavailable) == (code in TRANSIENT)


def test_a_server_with_too_many_clients_is_a_transient_error() -> None:
    error = hiredis.ReplyError("ERR max number of clients reached")
    assert is_transient(error)
    assert type(translate(error)) is StoreUnavailable


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        *((f"{code} because", code) for code in (*ERRORS, "ERR", "NOGROUP", "BUSYGROUP")),
        ("ERR no such key", "NOKEY"),
        ("ERR max number of clients reached", "MAXCLIENTS"),
    ],
)
def test_an_error_carries_the_kind_of_the_reply(reply: str, kind: str) -> None:
    error = translate(hiredis.ReplyError(reply), ("key",))
    assert error.kind == kind
    # Executors of Spark send errors to the driver.
    assert pickle.loads(pickle.dumps(error)).kind == kind  # noqa: S301  (our own)


def test_an_error_without_a_reply_has_no_kind() -> None:
    assert StoreUnavailable("cannot reach redis://127.0.0.1:1").kind == ""


def test_a_call_raises_an_error_with_its_kind(open_store: Open, private_server: Server) -> None:
    store = open_store(private_server.url)
    store.run(add("a"))
    with pytest.raises(WrongType) as wrong_type:
        store.run(get("members"))
    assert wrong_type.value.kind == "WRONGTYPE"
    with pytest.raises(StoreError) as no_group:
        store.run(Call("XPENDING", ("stream",), ("group",), list, repeatable=True))
    assert no_group.value.kind == "NOGROUP"


def test_no_module_looks_for_a_kind_in_the_text_of_an_error() -> None:
    source = Path(tambomq.__file__).parent
    matches = re.compile(r"str\(\w+(?:\[\d\])?\)\.startswith\(|\" in str\(\w*err")
    found = [path.name for path in source.rglob("*.py") if matches.search(path.read_text("utf-8"))]
    assert not found


def test_a_full_memory_has_a_rule_of_its_own() -> None:
    error = translate(hiredis.ReplyError("OOM command not allowed"))
    assert type(error) is StoreFull
    assert not isinstance(error, StoreUnavailable)


@pytest.mark.parametrize("why", REFUSALS)
def test_a_server_that_refuses_writes_is_read_only(
    private_server: Server, open_store: Open, why: Refusal
) -> None:
    store = open_store(private_server.url, patience_s=0)
    store.run(add("before"))
    with refusing_writes(private_server, why):
        with pytest.raises(StoreReadOnly, match=f"^{why} "):
            store.run(incr())
        with pytest.raises(StoreReadOnly, match=f"^{why} "):
            store.run(add("now"))
        assert store.run(get("count")) is None
    assert store.run(incr()) == 1


@pytest.mark.parametrize("why", REFUSALS)
def test_a_write_that_was_refused_for_a_while_is_done_once(
    private_server: Server, open_store: Open, why: Refusal
) -> None:
    store = open_store(private_server.url, patience_s=30)
    assert store.run(incr()) == 1
    with ExitStack() as refusal:
        refusal.enter_context(refusing_writes(private_server, why))
        done: list[object] = []
        writing = threading.Thread(target=lambda: done.extend(store.outcomes([incr()])))
        writing.start()
        assert store.run(get("count")) == b"1"
        refusal.close()
        writing.join(30)
    assert done == [2]


def test_an_unknown_error_is_permanent(open_store: Open, private_server: Server) -> None:
    store = open_store(private_server.url, patience_s=30)
    store.run(add("a"))
    with pytest.raises(StoreError) as raised:
        store.run(incr("members"))
    assert not isinstance(raised.value, StoreUnavailable)
