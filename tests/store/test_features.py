"""The optional commands of a server, from its reply to COMMAND."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tambomq.errors import StoreRefused, StoreUnavailable, TamboError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Plan
from tambomq.store.features import Features, features
from tambomq.store.sync import Store
from tests.servers import Server

# What the servers answer, as far as it is read.
REDIS_8_INFO = [[b"xackdel", -6, [b"write", b"fast"], 1, 1, 1]]
REDIS_8_DOCS = [
    b"xadd",
    [
        *(b"summary", b"Appends a new message to a stream.", b"arguments"),
        [
            [b"name", b"key", b"type", b"key", b"key_spec_index", 0],
            [b"name", b"nomkstream", b"type", b"pure-token", b"token", b"NOMKSTREAM"],
            [
                *(b"name", b"idmp", b"type", b"oneof", b"since", b"8.6.0", b"arguments"),
                [
                    [b"name", b"idmpauto", b"type", b"string", b"token", b"IDMPAUTO"],
                    [
                        *(b"name", b"block", b"type", b"block", b"token", b"IDMP", b"arguments"),
                        [[b"name", b"pid", b"type", b"string"]],
                    ],
                ],
            ],
        ],
    ],
    b"xreadgroup",
    [
        b"arguments",
        [
            [b"name", b"count", b"type", b"integer", b"token", b"COUNT"],
            [b"name", b"min-idle-time", b"type", b"integer", b"token", b"CLAIM"],
        ],
    ],
]
VALKEY_INFO = [None]
VALKEY_DOCS = [
    b"xadd",
    [b"arguments", [[b"name", b"key", b"type", b"key"]]],
    b"xreadgroup",
    [b"arguments", [[b"name", b"count", b"type", b"integer", b"token", b"COUNT"]]],
]


def answered(info: Any, docs: Any) -> Features:
    """The end of the plan when the server answers so; an error stands for a refusal."""
    plan: Plan[Features] = features()
    calls = plan.send(None)  # type: ignore[arg-type]
    outcomes = [
        reply if isinstance(reply, TamboError) else call.decode(reply)
        for call, reply in zip(calls, (info, docs), strict=True)
    ]
    with pytest.raises(StopIteration) as end:
        plan.send(outcomes)
    found: Features = end.value.value
    return found


def test_redis_8_has_all_features() -> None:
    assert answered(REDIS_8_INFO, REDIS_8_DOCS) == Features(xackdel=True, idmp=True, claim=True)


def test_valkey_has_no_features() -> None:
    assert answered(VALKEY_INFO, VALKEY_DOCS) == Features()


def test_a_server_that_documents_nothing_has_nothing() -> None:
    assert answered([None], []) == Features()


def test_a_server_that_does_not_let_us_ask_has_nothing() -> None:
    refusal = StoreRefused("NOPERM")
    assert answered(refusal, refusal) == Features()


def test_an_unreachable_server_raises_instead_of_having_no_features() -> None:
    with pytest.raises(StoreUnavailable):
        answered(StoreUnavailable("gone"), StoreUnavailable("gone"))


def test_all_is_asked_in_one_round_trip_that_may_be_repeated() -> None:
    calls = features().send(None)  # type: ignore[arg-type]
    assert [call.parts for call in calls] == [
        ("COMMAND", "INFO", "xackdel"),
        ("COMMAND", "DOCS", "xadd", "xreadgroup"),
    ]
    assert all(call.repeatable for call in calls)


def test_the_embedded_server_has_none(running: Callable[[str], Server]) -> None:
    store = Store(running("valkey").url)
    found = store.follow(features())
    store.close()
    assert found == Features()


async def test_the_features_of_each_server_are_detected(
    each_server: Server, request: pytest.FixtureRequest
) -> None:
    is_redis_8 = "redis8" in request.node.name
    store = AsyncStore(each_server.url)
    found = await store.follow(features())
    await store.close()
    assert found == Features(xackdel=is_redis_8, idmp=is_redis_8, claim=is_redis_8)
