"""Made-up messages and dead letters, of the incident in `canned`."""

from __future__ import annotations

from tambomq.console.actions.model import DeadLetterSummary, LetterGroup, Operation
from tambomq.console.messages.model import (
    Body,
    Explanation,
    Gate,
    MessageDetail,
    MessagePage,
    MessageRow,
    MessageState,
    TimelineEntry,
)
from tambomq.console.model import Series
from tests.console.browser.canned import ERROR, minutes, now_ms


def message_page(queue: str, state: MessageState, *, find: str = "", n: int = 20) -> MessagePage:
    """Return some messages; a search is cut off."""
    at = now_ms()
    rows = [
        MessageRow(
            queue=queue,
            id=f"01M7JGXBNGCBFD438G3QEGWJ{i:02}",
            name="charge" if i % 4 else "capture",
            state=state,
            attempt=3 + i % 3,
            max_attempts=8,
            added_ms=at - 991_000 + i * 7_000,
            due_ms=at + 4_000 + i * 12_000,
            died_ms=at - 2_100 - i * 1_300 if state == "dead" else None,
            size_bytes=412,
            error=ERROR if state in {"delayed", "dead"} else None,
            preview='{"order": "ord_918273", "customer": "cus_4471"}',
        )
        for i in range(n)
    ]
    return MessagePage(
        queue=queue,
        state=state,
        rows=rows,
        next="50",
        total=11906,
        looked_at=10_000 if find else n,
        cut_off=bool(find),
    )


BODY = """{
  "order": "ord_918273",
  "customer": "cus_4471",
  "amount": {
    "value": 12990,
    "currency": "EUR"
  },
  "capture": true,
  "note": "<b>leave at the door</b>"
}"""
DUE = "2030-01-31T16:10:32.104Z"
HEX = '00000000  7b 22 6f 72 64 65 72 22  3a 20 22 6f 72 64 5f 39  |{"order": "ord_9|'


def message_detail(queue: str, id: str, *, body: str = BODY) -> MessageDetail:
    """Return the page of a message that waits for its sixth run."""
    at = now_ms()
    row = MessageRow(
        queue=queue, id=id, name="charge", state="delayed", attempt=5, max_attempts=8,
        added_ms=at - 991_000, due_ms=at + 134_000, error=ERROR, size_bytes=len(body),
    )  # fmt: skip
    timeline = [TimelineEntry(at_ms=at + 134_000, kind="future", text="Run 6 of 8 is due")]
    for run in range(5, 0, -1):
        began = at - (6 - run) * 180_000
        timeline += [
            TimelineEntry(at_ms=began + 1_210, kind="failed",
                          text=f"Run {run} failed: {ERROR}. Again in 5 m."),
            TimelineEntry(at_ms=began, kind="started", text=f"Run {run} began, on pay-3.prod"),
        ]  # fmt: skip
    timeline.append(TimelineEntry(at_ms=at - 991_000, kind="added", text="Delayed by 3.1 s"))
    return MessageDetail(
        at_ms=at,
        row=row,
        why=Explanation(
            headline="It waits for its 6th run, due in 2 m 14 s.",
            detail=f"Run 5 of 8 failed: {ERROR}. This queue waits 5 m before a 6th run.",
            gates=[
                Gate(name="Due time", now=f"Not before {DUE}, in 2 m 14 s", verdict="holds"),
                Gate(name="Line", now="4,212 jobs wait now, about 59 s", verdict="next"),
                Gate(name="Places", now="120 of 120 taken, on 3 workers", verdict="next"),
                Gate(name="Pause", now="The queue is not paused", verdict="open"),
                Gate(name="Limiter", now="3 of 100 started in this second", verdict="open"),
            ],
        ),
        body=Body(size_bytes=len(body), cut_off=False, best="json", json=body,
                  msgpack=None, text=body, hex=HEX),
        facts=[("State", "delayed"), ("Runs", "5 of 8"), ("Result", "none yet")],
        timeline=timeline,
        commands=[
            ("0: not paused", f"redis-cli EXISTS '{{{queue}}}:paused'"),
            ("the same in one answer", f"tambo explain {queue} {id}"),
        ],
        actions=["run_now", "edit", "cancel", "delete"],
    )  # fmt: skip


def dead_letters() -> DeadLetterSummary:
    """Return what died of what."""
    at = now_ms()

    def group(n: int, shape: str, reason: str, many: int, queue: str, name: str) -> LetterGroup:
        return LetterGroup(id=f"g{n}", queue=queue, reason=reason, shape=shape, name=name,
                           count=many, first_ms=at - 660_000, last_ms=at - 2_000)  # fmt: skip

    pay, mail, bills = "chasqui:payments", "chasqui:mail", "chasqui:invoices"
    retries, lost = "retries_exhausted", "unrecoverable"
    shape = "HTTPStatusError: 503 from acquirer <id>"
    groups = [
        group(1, shape, retries, 1087, pay, "charge"),
        group(2, "ReadTimeout: acquirer <id>, <n> ms", retries, 163, pay, "charge"),
        group(3, "KeyError: 'vat_id'", lost, 116, bills, "render"),
        group(4, "TemplateError: line <n> of '…'", retries, 72, bills, "render"),
        group(5, "SMTPRecipientsRefused: <address>", retries, 41, mail, "welcome"),
        group(6, "no such card <id>", lost, 17, pay, "refund"),
        group(7, shape, retries, 15, pay, "capture"),
    ]
    total = sum(each.count for each in groups)
    by_queue = {q: sum(g.count for g in groups if g.queue == q) for q in (pay, bills, mail)}
    per_minute = Series(
        times_ms=minutes(),
        values={
            retries: [*[0.0] * 47, *[100.0 + i % 3 * 7 for i in range(13)]],
            lost: [2.0 if i % 19 == 0 else 0.0 for i in range(60)],
        },
    )
    return DeadLetterSummary(
        at_ms=at,
        total=total,
        by_queue=by_queue,
        by_reason={r: sum(g.count for g in groups if g.reason == r) for r in (retries, lost)},
        groups=groups,
        per_minute=per_minute,
        looked_at=total,
    )


def operation(verb: str, wanted: int, queue: str) -> Operation:
    """Return an operation that has done its work."""
    words = {"replay": "Replayed", "delete": "Deleted"}
    return Operation(id=f"op-{verb}", verb=verb, queue=queue, wanted=wanted, done=wanted, failed=0,
                     state="done", text=f"{words[verb]} {wanted:,} letters of {queue}.",
                     undo_until_ms=now_ms() + 30_000)  # fmt: skip
