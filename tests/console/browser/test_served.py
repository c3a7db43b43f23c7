"""The console of a real `tambo serve`, in a browser: what is done there is done in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tambomq.chasqui import BlockingQueue, RepeatPattern
from tambomq.errors import QueueExists
from tambomq.gomq import GomqClient
from tambomq.kqueue import Consumer, Producer
from tambomq.rsmq import Rsmq
from tests.console.browser import canned
from tests.console.browser.buried import bury
from tests.console.browser.chromium import opened
from tests.serve.processes import Serving, serving
from tests.servers import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("served")) as started:
        yield started


@pytest.fixture
def console_page(browser: Browser, served: Serving) -> Iterator[Page]:
    with opened(browser, served.address("http"), viewport={"width": 1280, "height": 900}) as page:
        yield page


@pytest.fixture
def queue(served: Serving, request: pytest.FixtureRequest) -> Iterator[BlockingQueue]:
    """A queue of the test's own, with one job that is due in an hour."""
    name = request.node.name.removeprefix("test_")[:40].strip("_")
    with BlockingQueue(name, redis_url=served.url) as queue:
        queue.add("later", {"to": "ada@example.com"}, delay_ms=3_600_000, job_id="later-1")
        yield queue


def _path(queue: BlockingQueue, page: str = "/queue", **more: str) -> str:
    words = "".join(f"&{key}={quote(value)}" for key, value in more.items())
    return f"{page}?q={quote('chasqui:' + queue.name)}{words}"


def _confirm(page: Page, label: str) -> None:
    """Type the number that *label* ends with, then press the button of that label."""
    page.locator(".confirm input").fill(label.rsplit(maxsplit=1)[-1])
    page.locator(".confirm").get_by_role("button", name=label).click()


def test_without_queues_it_lists_where_each_protocol_is(browser: Browser, tmp_path: Path) -> None:
    with (
        serving(tmp_path) as empty,
        opened(browser, empty.address("http"), viewport={"width": 1280, "height": 900}) as page,
    ):
        page.goto("/")
        for name in ("rsmq", "chasqui", "gomq", "kqueue"):
            expect(page.locator(".blank .pairs")).to_contain_text(empty.address(name))
        demo = page.locator(".blank pre").inner_text()
        for flag, name in (
            ("--redis-url", "redis"),
            ("--gomq-address", "gomq"),
            ("--kqueue-address", "kqueue"),
        ):
            assert f"{flag} {empty.address(name)}" in demo


def test_a_message_that_is_sent_is_seen_while_the_page_is_open(
    console_page: Page, served: Serving
) -> None:
    console_page.goto("/")
    expect(console_page.locator(".lamp").first).to_contain_text("ms")
    with Rsmq(served.url) as rsmq:
        rsmq.create_queue("seen-at-once")
        rsmq.send_message("seen-at-once", "hello")
    row = console_page.locator("tr.row", has_text="seen-at-once")
    expect(row.locator(".c-depth")).to_have_text("1")


def test_a_queue_is_paused_resumed_and_emptied(console_page: Page, queue: BlockingQueue) -> None:
    queue.add_bulk([{"name": "mail", "data": n} for n in range(5)])
    console_page.goto(_path(queue))
    console_page.get_by_role("button", name="Pause").click()
    eventually(queue.is_paused)
    console_page.get_by_role("button", name="Resume").click()
    eventually(lambda: not queue.is_paused())
    console_page.get_by_role("button", name="Drain…").click()
    confirm = console_page.locator(".confirm")
    expect(confirm).to_contain_text("5 waiting jobs would be removed")
    expect(confirm).to_contain_text("Delayed jobs, those that run, and dead letters stay.")
    _confirm(console_page, "Drain 5")
    eventually(lambda: queue.get_job_counts().waiting == 0)
    assert queue.get_job_counts().delayed == 1


def test_a_purge_leaves_dead_letters(
    console_page: Page, queue: BlockingQueue, served: Serving
) -> None:
    bury(queue, served.url, 2)
    queue.add_bulk([{"name": "mail", "data": n} for n in range(3)])
    console_page.goto(_path(queue))
    console_page.get_by_role("button", name="Purge…").click()
    expect(console_page.locator(".confirm")).to_contain_text("and dead letters, stay.")
    _confirm(console_page, "Purge 4")
    eventually(lambda: queue.get_job_counts().waiting + queue.get_job_counts().delayed == 0)
    assert len(queue.peek_dlq()) == 2


def test_a_purge_of_rsmq_keeps_the_queue_and_its_dead_letters(
    console_page: Page, served: Serving
) -> None:
    with Rsmq(served.url) as rsmq:
        for name, count in (("purged", 3), ("purged-dead", 1)):
            rsmq.create_queue(name)
            rsmq.send_messages(name, ["x"] * count)
        assert rsmq.receive_message("purged", vt=600) is not None
        console_page.goto("/queue?q=rsmq%3Apurged")
        console_page.get_by_role("button", name="Purge…").click()
        expect(console_page.locator(".confirm")).to_contain_text("also those in flight")
        _confirm(console_page, "Purge 3")
        eventually(lambda: rsmq.get_queue_attributes("purged").msgs == 0)
        assert rsmq.get_queue_attributes("purged-dead").msgs == 1


def test_a_purge_of_gomq_removes_what_no_consumer_has_been_given(
    console_page: Page, served: Serving
) -> None:
    with GomqClient(served.address("gomq")) as client:
        client.publish_many([("purged", "one"), ("purged", "two")])
        console_page.goto("/queue?q=gomq%3Apurged")
        console_page.get_by_role("button", name="Purge…").click()
        expect(console_page.locator(".confirm")).to_contain_text("Those that peers hold stay.")
        _confirm(console_page, "Purge 2")
        expect(console_page.locator(".toast")).to_contain_text("Removed 2 undelivered messages")
        client.subscribe("purged", "late")
        client.publish("purged", "three")
        seen: list[str] = []

        def is_seen() -> bool:
            seen.extend(each.text for each in client.observe("late"))
            return bool(seen)

        eventually(is_seen)
        assert seen == ["three"]


def test_clients_of_both_brokers_are_shown(console_page: Page, served: Serving) -> None:
    host, _, port = served.address("kqueue").rpartition(":")
    with (
        GomqClient(served.address("gomq"), peer="billing-1") as client,
        Consumer(host, int(port)) as consumer,
        Producer(host, int(port)) as producer,
    ):
        client.subscribe("invoices", "billing")
        client.observe("billing")
        consumer.subscribe("weather")
        while consumer.receive(timeout_s=0.1) is None:  # until the subscription is known
            producer.send("weather", "rain")
        console_page.goto("/workers")
        expect(console_page.locator("main")).to_contain_text("billing-1")
        connections = console_page.locator("section", has_text="KqueueMsgQ connections").last
        expect(connections).to_contain_text("weather")
        console_page.goto("/")
        for queue in ("gomq:invoices", "kqueue:weather"):
            expect(console_page.locator(f'a[title="{queue}"]')).to_be_visible()


def test_a_delayed_job_is_explained_and_run_now(console_page: Page, queue: BlockingQueue) -> None:
    console_page.goto(_path(queue, state="delayed"))
    console_page.get_by_role("link", name="later-1").click()
    expect(console_page.locator(".why-box")).to_contain_text("holds it now")
    expect(console_page.locator(".body pre")).to_contain_text("ada@example.com")
    console_page.get_by_role("button", name="Run now").click()
    eventually(lambda: queue.get_job_counts().delayed == 0)
    assert queue.get_job_counts().waiting == 1


def test_a_job_is_cancelled(console_page: Page, queue: BlockingQueue) -> None:
    console_page.goto(_path(queue, "/message", id="later-1"))
    console_page.get_by_role("button", name="Cancel…").click()
    console_page.get_by_role("button", name="Cancel the job").click()
    eventually(lambda: queue.get_job_counts().delayed == 0)


def test_a_job_is_sent_by_the_form(console_page: Page, queue: BlockingQueue) -> None:
    console_page.goto(_path(queue, "/send"))
    console_page.get_by_label("Name", exact=True).fill("welcome")
    console_page.get_by_label("Body", exact=True).fill('{"to": "bob@example.com"}')
    console_page.get_by_role("button", name="Send", exact=True).click()
    expect(console_page.locator(".note.good")).to_be_visible()
    assert queue.get_job_counts().waiting == 1


def test_dead_letters_are_found_and_replayed(
    console_page: Page, queue: BlockingQueue, served: Serving
) -> None:
    bury(queue, served.url, 7)
    console_page.goto(_path(queue, "/dead-letters"))
    expect(console_page.locator(".shapes")).to_contain_text("no such card <n>")
    console_page.locator("[data-group]").first.check()
    expect(console_page.locator(".selection .many")).to_have_text("7 letters")
    console_page.get_by_role("button", name="Replay…", exact=True).click()
    console_page.get_by_role("button", name="Replay 7").click()
    eventually(lambda: queue.get_job_counts().waiting == 7)
    assert queue.peek_dlq() == []


def test_the_page_shows_what_a_slow_replay_has_left(
    console_page: Page, queue: BlockingQueue, served: Serving
) -> None:
    bury(queue, served.url, 3)
    console_page.goto(_path(queue, "/dead-letters"))
    console_page.locator("[data-group]").first.check()
    console_page.get_by_role("button", name="Replay…").click()
    console_page.get_by_label("Letters per second").fill("2")
    console_page.get_by_role("button", name="Replay 3").click()
    expect(console_page.locator("main")).to_contain_text("No dead letter matches")
    assert queue.peek_dlq() == []


def test_a_dead_letter_is_replayed_where_it_is_explained(
    console_page: Page, queue: BlockingQueue, served: Serving
) -> None:
    bury(queue, served.url, 2)
    console_page.goto(_path(queue, state="dead"))
    console_page.locator(".messages tbody a").first.click()
    expect(console_page.locator(".why-box")).to_contain_text("It is a dead letter")
    console_page.get_by_role("button", name="Replay…", exact=True).click()
    console_page.get_by_role("button", name="Replay it").click()
    eventually(lambda: queue.get_job_counts().waiting == 1)
    assert len(queue.peek_dlq()) == 1
    expect(console_page.locator(".why-box")).not_to_contain_text("It is a dead letter")


def test_messages_of_rsmq_are_deleted_by_their_list(console_page: Page, served: Serving) -> None:
    with Rsmq(served.url) as rsmq:
        rsmq.create_queue("to-delete")
        ids = [rsmq.send_message("to-delete", body) for body in ("one", "two")]
        console_page.goto("/queue?q=rsmq%3Ato-delete")
        console_page.get_by_label(f"Select {ids[0]}").check()
        console_page.get_by_role("button", name="Delete…").click()
        console_page.get_by_role("button", name="Delete 1", exact=True).click()
        expect(console_page.locator(".messages tbody tr")).to_have_count(1)
        assert [each.id for each in rsmq.peek_messages("to-delete", 9)] == ids[1:]


def test_dead_letters_are_deleted_and_brought_back(
    console_page: Page, queue: BlockingQueue, served: Serving
) -> None:
    bury(queue, served.url, 3)
    console_page.goto(_path(queue, "/dead-letters"))
    console_page.locator("[data-group]").first.check()
    console_page.get_by_role("button", name="Delete…").click()
    console_page.locator(".confirm input").fill("3")
    console_page.get_by_role("button", name="Delete 3").click()
    eventually(lambda: queue.peek_dlq() == [])
    console_page.locator(".toast").get_by_role("button", name="Undo").click()
    eventually(lambda: len(queue.peek_dlq()) == 3)


def test_hostile_messages_are_shown_as_text(console_page: Page, served: Serving) -> None:
    name = "hostile"
    with Rsmq(served.url) as rsmq:
        try:
            rsmq.create_queue(name, maxsize=-1)
        except QueueExists:
            rsmq.purge_queue(name)
        bodies = (canned.SCRIPT, canned.RIGHT_TO_LEFT, bytes(range(256)), b"x" * (10 << 20))
        ids = [rsmq.send_message(name, body) for body in bodies]
    console_page.goto("/")
    console_page.locator(f'a[title="rsmq:{name}"]').click()
    expect(console_page.locator(".messages tr[data-row]")).to_have_count(len(ids))
    for id in ids:
        console_page.goto(f"/message?q=rsmq%3A{name}&id={id}")
        expect(console_page.locator(".body pre")).to_be_visible()
        assert console_page.evaluate("document.documentElement.scrollWidth") == 1280
        assert console_page.evaluate("window.hacked") is None
        assert console_page.locator("main script, main img").count() == 0


def test_a_delayed_job_is_edited_and_run(console_page: Page, queue: BlockingQueue) -> None:
    console_page.goto(_path(queue, "/message", id="later-1"))
    console_page.get_by_role("button", name="Edit and run…").click()
    console_page.get_by_label("The new body").fill('{"to": "grace@example.com"}')
    console_page.get_by_role("button", name="Run it").click()
    eventually(lambda: queue.get_job_counts().delayed == 0)
    job = queue.get_job("later-1")
    assert job is not None
    assert job.data == {"to": "grace@example.com"}


def test_a_schedule_is_run_now_and_skips_a_fire(console_page: Page, queue: BlockingQueue) -> None:
    key = queue.upsert_repeatable_job("report", None, repeat=RepeatPattern.every(3_600_000)).id
    [before] = queue.get_repeatable_jobs()
    console_page.goto("/schedules")
    row = console_page.locator("tr", has_text=queue.name)
    row.get_by_role("button", name="Run now").click()
    eventually(lambda: queue.get_job_counts().waiting == 1)
    row.get_by_role("button", name="Skip next…").click()
    console_page.get_by_role("button", name="Skip one fire").click()
    eventually(lambda: queue.get_repeatable_jobs()[0].next_fire_ms > before.next_fire_ms)
    assert queue.remove_repeatable_by_key(key)


def test_a_thousand_queues_of_a_real_server_are_shown(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path_factory.mktemp("many")) as served:
        with Rsmq(served.url) as rsmq:
            for number in range(1000):
                rsmq.create_queue(f"queue-{number:04}")
            rsmq.send_message("queue-0777", "hello")
        with opened(browser, served.address("http")) as page:
            page.goto("/")
            expect(page.locator(".foot").first).to_contain_text("1,000 of 1,000 queues")
            page.get_by_placeholder("Filter by name").fill("0777")
            row = page.locator("tr.row", has_text="queue-0777")
            expect(row.locator(".c-depth")).to_have_text("1")
            expect(page.locator("tr.row")).to_have_count(1)
