"""Dead letters of all queues are summed up, listed, and selected once and for all."""

from __future__ import annotations

import pytest
import redis

from tambomq.console.actions import dead_letters
from tambomq.console.actions.model import LetterSelector
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused
from tambomq.store.aio import AsyncStore
from tests.console.actions.acting import actions_on, bury_messages, kill_jobs
from tests.servers import Server


async def test_the_summary_covers_both_protocols(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 5)
    await bury_messages(server, 2)
    summary = await actions.summary()
    assert (summary.total, summary.by_queue) == (7, {"chasqui:mail": 5, "rsmq:orders": 2})
    assert {(each.queue, each.name, each.count) for each in summary.groups} == {
        ("chasqui:mail", "print", 3),
        ("chasqui:mail", "pay", 2),
        ("rsmq:orders", None, 2),
    }
    assert (await actions.summary("rsmq:orders")).total == 2
    found = await actions.summary(find="PRINTER")
    assert [each.count for each in found.groups] == [3]


async def test_letters_come_in_pages_the_newest_first(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 5)
    selector, pages, cursor = LetterSelector(queue="chasqui:mail"), [], None
    while True:
        page = await actions.letters(selector, cursor, 2)
        pages.append([row.died_ms for row in page.rows])
        if (cursor := page.next) is None:
            break
    died = [at for page in pages for at in page]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert died == sorted(died, key=lambda at: -(at or 0))
    with pytest.raises(ActionRefused, match="begin with the first one"):
        await actions.letters(selector, "x")


async def test_the_letters_of_all_queues_are_in_one_order(
    server: Server, store: AsyncStore
) -> None:
    actions, selector = actions_on(store), LetterSelector()
    await kill_jobs(server, 2)
    await bury_messages(server, 2)
    await kill_jobs(server, 4)
    first = await actions.letters(selector, None, 3)
    rest = await actions.letters(selector, first.next, 10)
    rows = [*first.rows, *rest.rows]
    mail, orders = "chasqui:mail", "rsmq:orders"
    assert (first.total, rest.next, len(rows)) == (8, None, 8)
    assert [row.queue for row in rows] == [*[mail] * 4, *[orders] * 2, *[mail] * 2]
    assert (await actions.letters(LetterSelector(find="printer"), None, 9)).total is None


async def test_a_search_that_stops_early_can_go_on(
    server: Server, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_LOOKED_AT", 2)
    actions, selector = actions_on(store), LetterSelector(find="no such card 1")
    await kill_jobs(server, 5)
    found, cursor, is_cut_off = [], None, []
    while True:
        page = await actions.letters(selector, cursor, 5)
        found += page.rows
        is_cut_off.append(page.cut_off)
        if (cursor := page.next) is None:
            break
    assert len(found) == 1
    assert is_cut_off == [True, True, False]


async def test_a_letter_says_how_often_it_ran(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 1)
    with redis.Redis.from_url(server.url) as admin:
        admin.xadd("{chasqui:mail}:dlq", {"d": b"\x94\xa1x\xc4", "reason": "malformed"})
    page = await actions.letters(LetterSelector(queue="chasqui:mail"), None, 2)
    assert [(row.id, row.attempt) for row in page.rows][1:] == [(page.rows[1].id, 1)]
    assert page.rows[0].attempt is None


async def test_a_damaged_queue_does_not_hide_the_letters_of_others(
    server: Server, store: AsyncStore
) -> None:
    await bury_messages(server, 1)
    with redis.Redis.from_url(server.url) as admin:
        admin.set("{chasqui:mail}:dlq", "not a stream")
    assert (await actions_on(store).summary()).by_queue == {"rsmq:orders": 1}


async def test_a_selection_is_fixed_when_it_is_made(server: Server, store: AsyncStore) -> None:
    actions = actions_on(store)
    await kill_jobs(server, 2)
    selection = await actions.select(LetterSelector(queue="chasqui:mail"))
    await kill_jobs(server, 4)
    assert (selection.count, selection.by_name) == (2, {"pay": 1, "print": 1})
    assert selection.dry_run.startswith("2 would run again in chasqui:mail, with their runs reset")


async def test_a_selection_that_is_too_large_says_so(
    server: Server, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_SELECTED", 3)
    actions = actions_on(store)
    await kill_jobs(server, 5)
    selection = await actions.select(LetterSelector())
    assert (selection.count, selection.cut_off) == (3, True)


async def test_ids_are_selected_within_a_queue(store: AsyncStore) -> None:
    with pytest.raises(ActionRefused, match="name the queue"):
        await actions_on(store).select(LetterSelector(ids=["1-0"]))


async def test_old_selections_are_forgotten(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_SELECTIONS", 1)
    actions = actions_on(store)
    first = await actions.select(LetterSelector())
    await actions.select(LetterSelector())
    with pytest.raises(ActionRefused, match="select the letters again"):
        actions.replay(first.id)


async def test_a_summary_of_many_queues_looks_at_no_more_letters_than_of_one(
    server: Server, store: AsyncStore, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_LOOKED_AT", 10)
    queues = [QueueRef("chasqui", name) for name in "abcde"]
    for ref in queues:
        for number in range(20):
            db.xadd(f"{{chasqui:{ref.name}}}:dlq", {"d": b"x", "reason": f"r{number}"})
    summary = await actions_on(store, *queues).summary()
    assert (summary.total, summary.looked_at, summary.cut_off) == (100, 10, True)


async def test_a_selection_is_searched_among_a_bounded_number_of_letters(
    server: Server, store: AsyncStore, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MAX_SEARCHED", 300)
    for number in range(600):
        db.xadd("{chasqui:mail}:dlq", {"d": b"x", "reason": "rare" if number == 50 else "usual"})
    actions = actions_on(store)
    usual = await actions.select(LetterSelector(queue="chasqui:mail", reasons=["usual"]))
    assert (usual.count, usual.cut_off) == (500, True)
    rare = await actions.select(LetterSelector(queue="chasqui:mail", reasons=["rare"]))
    assert (rare.count, rare.cut_off) == (0, True)
