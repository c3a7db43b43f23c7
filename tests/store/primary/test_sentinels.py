"""What is known of the primary, and searches for it; and real sentinels that fail over."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tambomq.clock import LONGEST_DELAY_S
from tambomq.errors import StoreRefused, StoreUnavailable
from tambomq.store.endpoint import endpoint
from tambomq.store.primary.sentinels import (
    CHECK_EVERY_S,
    NOWHERE,
    PrimarySearch,
    SentinelChoice,
    Sentinels,
    primary_of,
    retry_budget,
)
from tests.servers import Server, eventually
from tests.servers.sentinel import Sentinels as RealSentinels
from tests.store.conftest import Open
from tests.store.twins import AnyStore, add, get, incr, known

A, B = ("a", 26379), ("b", 26379)
ONE, TWO = ("10.0.0.1", 6379), ("10.0.0.2", 6379)
WITHIN_S = 60


def knowledge() -> SentinelChoice:
    return SentinelChoice(Sentinels((A, B), "prime"))


def test_the_address_is_read_from_the_answer_of_a_sentinel() -> None:
    call = primary_of("prime")
    assert call.parts == ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "prime")
    assert call.decode([b"10.0.0.1", b"6379"]) == ONE
    assert call.decode(None) is None


def test_before_the_first_answer_no_primary_is_known() -> None:
    known = knowledge()
    assert (known.preferred, known.in_order, known.is_outdated()) == (NOWHERE, (A, B), True)


def test_an_answer_is_valid_for_a_while_and_its_sentinel_comes_first() -> None:
    known = knowledge()
    assert known.accept(B, ONE)
    assert (known.preferred, known.in_order, known.is_outdated()) == (ONE, (B, A), False)
    assert not known.accept(B, ONE)
    assert known.accept(A, TWO)
    known.takes_no_writes(TWO)
    assert known.is_outdated()
    known.unanswered()
    assert not known.is_outdated()
    assert known.preferred == TWO


def test_each_server_that_sentinels_name_is_tried_once() -> None:
    known = knowledge()
    search = PrimarySearch(known)
    assert search.on_answer(A, ONE) == ONE
    assert not search.is_primary(ONE, ONE, is_replica=True)
    assert search.on_answer(B, ONE) is None
    assert known.preferred == NOWHERE
    assert "10.0.0.1:6379: it is a replica" in str(search.error())


def test_the_sentinel_that_named_the_primary_is_asked_first_next_time() -> None:
    known = knowledge()
    search = PrimarySearch(known)
    assert search.on_answer(A, ONE) == ONE
    search.failed(ONE, "gone")
    assert search.on_answer(B, TWO) == TWO
    assert search.is_primary(TWO, TWO, is_replica=False)
    assert (known.preferred, known.in_order) == (TWO, (B, A))


def test_a_server_that_was_replaced_while_connecting_is_not_the_primary() -> None:
    known = knowledge()
    search = PrimarySearch(known)
    assert search.on_answer(A, ONE) == ONE
    assert not search.is_primary(ONE, TWO, is_replica=False)
    assert known.preferred == NOWHERE
    assert "10.0.0.1:6379: it was replaced while connecting" in str(search.error())


def test_a_sentinel_that_is_gone_meanwhile_is_believed() -> None:
    known = knowledge()
    search = PrimarySearch(known)
    assert search.on_answer(A, ONE) == ONE
    assert search.is_primary(ONE, StoreUnavailable("gone"), is_replica=False)
    assert known.preferred == ONE


def test_only_a_name_that_all_sentinels_lack_is_refused() -> None:
    search = PrimarySearch(knowledge())
    assert search.on_answer(A, None) is None
    assert isinstance(search.error(), StoreUnavailable)
    assert search.on_answer(B, None) is None
    assert isinstance(search.error(), StoreRefused)
    assert "a:26379,b:26379 know no primary 'prime'" in str(search.error())


@pytest.mark.parametrize(
    ("url", "is_cluster", "longest_s"),
    [
        ("redis://a", False, LONGEST_DELAY_S),
        ("redis://a", True, CHECK_EVERY_S),
        ("redis://a,b", False, CHECK_EVERY_S),
        ("redis+sentinel://a/prime", False, CHECK_EVERY_S),
    ],
)
def test_pauses_are_short_where_another_server_may_take_over(
    url: str, is_cluster: bool, longest_s: float
) -> None:
    budget = retry_budget(endpoint(url), 600, is_cluster=is_cluster)
    longest = max(budget.next_delay_s() for _ in range(30))
    assert longest_s / 2 <= longest <= longest_s


# ── real sentinels ───────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sentinels() -> Iterator[RealSentinels]:
    with RealSentinels(password="secret", sentinel_password="other") as made:
        yield made


@pytest.fixture
def settled(sentinels: RealSentinels) -> Iterator[RealSentinels]:
    """The sentinels; after the test all servers run and replicate again."""
    yield sentinels
    for server in sentinels.servers:
        sentinels.resume(server) if server.is_running else server.restart()
    eventually(lambda: _is_whole(sentinels), within_s=WITHIN_S)


def _is_whole(sentinels: RealSentinels) -> bool:
    primary = sentinels.primary
    role = sentinels.ask(primary, "ROLE")
    return role[0] == "master" and len(role[2]) == 1 and sentinels.is_watched()


def _kill(sentinels: RealSentinels) -> Server:
    return sentinels.kill_primary()


def _freeze(sentinels: RealSentinels) -> Server:
    return sentinels.freeze_primary()


def _fail_over(sentinels: RealSentinels) -> Server:
    left = sentinels.primary
    sentinels.failover()
    return left


def _follow(sentinels: RealSentinels, store: AnyStore) -> Server:
    """Make calls until the store uses the new primary; return that."""
    primary = sentinels.wait_promoted()

    def is_followed() -> bool:
        store.run(get("anything"))
        return bool(known(store).preferred == ("127.0.0.1", primary.port))

    eventually(is_followed, within_s=WITHIN_S)
    return primary


@pytest.mark.slow
@pytest.mark.parametrize("leave", [_kill, _freeze, _fail_over])
def test_calls_follow_a_failover(
    settled: RealSentinels, open_store: Open, leave: Callable[[RealSentinels], Server]
) -> None:
    store = open_store(settled.url, patience_s=WITHIN_S)
    key = f"members-{leave.__name__}-{type(store).__name__}"
    assert store.run(add("before", key)) == "before"
    left = leave(settled)
    primary = _follow(settled, store)
    assert primary is not left
    assert store.run(add("after", key)) == "after"
    assert "after" in settled.ask(primary, "SMEMBERS", key)
    assert store.outcomes([add("and on", key), get("nothing")]) == ["and on", None]


@pytest.mark.slow
def test_a_frozen_primary_that_resumes_gets_no_write_after_its_replacement(
    settled: RealSentinels, open_store: Open
) -> None:
    store = open_store(settled.url, patience_s=WITHIN_S)
    key = f"count-{type(store).__name__}"
    assert store.run(incr(key)) == 1
    frozen = settled.freeze_primary()
    primary = _follow(settled, store)
    # It takes writes until the sentinels get to make it a replica.
    settled.resume(frozen)
    before = int(settled.ask(primary, "GET", key) or 0)
    assert [store.run(incr(key)) for _ in range(20)] == [*range(before + 1, before + 21)]
    assert int(settled.ask(primary, "GET", key)) == before + 20


@pytest.mark.slow
def test_a_former_primary_returns_as_a_replica_and_may_be_promoted_again(
    settled: RealSentinels, open_store: Open
) -> None:
    store = open_store(settled.url, patience_s=WITHIN_S)
    first = settled.kill_primary()
    assert store.run(add("a")) == "a"
    first.restart()
    eventually(lambda: _is_whole(settled), within_s=WITHIN_S)
    assert settled.failover() is first
    assert _follow(settled, store) is first
    assert store.run(add("b")) == "b"
    assert settled.ask(first, "SMEMBERS", "members") == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["secret", "other"])
def test_a_wrong_password_is_refused_and_not_shown(
    settled: RealSentinels, open_store: Open, wrong: str
) -> None:
    store = open_store(settled.url.replace(wrong, "hunter2"), patience_s=0)
    with pytest.raises((StoreRefused, StoreUnavailable), match="WRONGPASS") as refused:
        store.run(incr())
    assert "hunter2" not in str(refused.value)
