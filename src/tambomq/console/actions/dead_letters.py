"""Dead letters of all queues: summary, pages, and selections that are fixed when made."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from tambomq.clock import Deadline, now_ms
from tambomq.console.actions.letter_boxes import PAGE, Letter, LetterBox, letter_box
from tambomq.console.actions.letter_order import cursor_of, newest_first
from tambomq.console.actions.model import DeadLetterSummary, LetterSelection, LetterSelector
from tambomq.console.actions.summary import matcher, summarise
from tambomq.console.messages.model import MessagePage, MessageRow
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused, StoreUnavailable, TamboError
from tambomq.ids import letters as random_letters
from tambomq.rsmq.keys import DEAD_SUFFIX
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.aio import AsyncStore

MAX_LOOKED_AT: Final = 20_000
"""Letters that a summary looks at, the newest of each queue."""
MAX_SELECTED: Final = 50_000
"""Letters that one selection holds."""
MAX_SEARCHED: Final = 500_000
"""Letters among which a selection is searched: some seconds, in short steps."""
MAX_SELECTIONS: Final = 50
"""Selections that are kept; the oldest is forgotten."""
_PAGE_WITHIN_S: Final = 1.0

QueueRefs = Callable[[], Awaitable[Sequence[QueueRef]]]


class FixedSelection(msgspec.Struct, frozen=True):
    """A selection with its letters, by queue."""

    shown: LetterSelection
    letters: dict[str, list[str]]


class DeadLetters:
    """The dead letters of the queues that *refs* returns."""

    def __init__(self, store: AsyncStore, rsmq: RsmqKeys, refs: QueueRefs) -> None:
        self._store, self._rsmq, self._refs = store, rsmq, refs
        self._selections: OrderedDict[str, FixedSelection] = OrderedDict()

    async def summary(
        self, queue: str | None = None, since_ms: int | None = None, find: str = ""
    ) -> DeadLetterSummary:
        """Return what died of what, of all queues or one."""
        boxes, counts = await self._counted(queue)
        filled = [box for box in boxes if counts[str(box.ref)]]
        share = max(1, MAX_LOOKED_AT // max(1, len(filled)))
        found: list[Letter] = []
        cut_off = False
        matches = matcher(LetterSelector(find=find))
        for box in filled:
            looked_at = 0
            async for page in box.pages(count=min(PAGE, share)):
                looked_at += len(page)
                recent = [each for each in page if since_ms is None or each.died_ms >= since_ms]
                found += filter(matches, recent)
                if since_ms is not None and len(recent) < len(page):
                    break
                if looked_at >= share:
                    cut_off |= looked_at < counts[str(box.ref)]
                    break
        return summarise(found, counts, now_ms(), cut_off=cut_off)

    async def page(
        self, selector: LetterSelector, cursor: str | None = None, limit: int = 50
    ) -> MessagePage:
        """Return letters of all queues that *selector* means, the newest first."""
        boxes, counts = await self._counted(selector.queue)
        filled = [box for box in boxes if counts[str(box.ref)]]
        matches, deadline = matcher(selector), Deadline(_PAGE_WITHIN_S)
        is_filtered = selector != LetterSelector(queue=selector.queue)
        # Of many queues one letter each may be on the page: no more are read than it can show.
        at_once = PAGE if is_filtered or len(filled) == 1 else min(PAGE, limit + 1)
        found: list[Letter] = []
        looked_at, next_page, cut_off = 0, None, False
        last: Letter | None = None
        async for letter in newest_first(filled, cursor, at_once):
            # However long it takes, a page goes on: the next one begins after it.
            cut_off = looked_at >= MAX_LOOKED_AT or (looked_at > limit and deadline.passed)
            if last is not None and (cut_off or (len(found) == limit and matches(letter))):
                next_page = cursor_of(last)
                break
            looked_at, last = looked_at + 1, letter
            if matches(letter):
                found.append(letter)
        return MessagePage(
            queue=selector.queue or "",
            state="dead",
            rows=[_row(each) for each in found],
            next=next_page,
            total=None if is_filtered else sum(counts.values()),
            looked_at=looked_at,
            cut_off=cut_off,
        )

    async def select(self, selector: LetterSelector) -> LetterSelection:
        """Count and fix the letters that *selector* means now; later deaths are not in it."""
        if selector.ids and selector.queue is None:
            raise ActionRefused("letters are selected by id in one queue: name the queue")
        boxes, counts = await self._counted(selector.queue)
        matches, names = matcher(selector), Counter[str]()
        chosen: dict[str, list[str]] = {}
        total, searched, cut_off = 0, 0, False
        for box in boxes:
            if not counts[str(box.ref)] or cut_off:
                continue
            ids: list[str] = []
            async for page in box.pages():
                for each in filter(matches, page):
                    if total == MAX_SELECTED:
                        cut_off = True
                        break
                    ids.append(each.id)
                    names[each.name or "unnamed"] += 1
                    total += 1
                searched += len(page)
                # The last page of the last queue leaves nothing out, but it is not known to be it.
                cut_off = cut_off or searched >= MAX_SEARCHED
                if cut_off:
                    break
            if ids:
                # The oldest first, so that they are replayed in the order in which they died.
                chosen[str(box.ref)] = ids[::-1]
        return self._keep(chosen, names, cut_off=cut_off)

    def selection(self, id: str) -> FixedSelection:
        """Return a selection. Raises `ActionRefused` if it is not known any more."""
        if (found := self._selections.get(id)) is None:
            raise ActionRefused("this selection is not known any more: select the letters again")
        return found

    def box(self, queue: str) -> LetterBox:
        """Return the dead letters of a queue. Raises `ActionRefused`."""
        box = letter_box(self._store, self._rsmq, QueueRef.parse(queue))
        if box is None:
            raise ActionRefused(f"{queue} has no dead letters: its protocol has none")
        return box

    async def _counted(self, queue: str | None) -> tuple[list[LetterBox], dict[str, int]]:
        """Return the dead-letter queues, and how many letters each has; damaged ones have 0."""
        refs = [QueueRef.parse(queue)] if queue else await self._refs()
        names = {ref.name for ref in refs if ref.protocol == "rsmq"}
        boxes, counts = [], dict[str, int]()
        for ref in refs:
            is_own = ref.protocol == "rsmq" and ref.name.endswith(DEAD_SUFFIX)
            if is_own and ref.name.removesuffix(DEAD_SUFFIX) in names:
                continue
            if (box := letter_box(self._store, self._rsmq, ref)) is None:
                continue
            boxes.append(box)
        for box in boxes:
            try:
                counts[str(box.ref)] = await box.count()
            except StoreUnavailable:
                raise
            except TamboError:
                counts[str(box.ref)] = 0
        return boxes, counts

    def _keep(
        self, chosen: dict[str, list[str]], names: Counter[str], *, cut_off: bool
    ) -> LetterSelection:
        count = sum(map(len, chosen.values()))
        kinds = ", ".join(f"{number:,} {name}" for name, number in names.most_common(5))
        queues = " and ".join(list(chosen)[:2]) if len(chosen) <= 2 else f"{len(chosen)} queues"  # noqa: PLR2004  (few enough to name)
        # Messages of RSMQ have no names.
        kinds = f": {kinds}" if set(names) != {"unnamed"} else ""
        dry_run = f"{count:,} would run again in {queues}, with their runs reset{kinds}."
        shown = LetterSelection(
            id=random_letters(16),
            at_ms=now_ms(),
            count=count,
            by_queue={queue: len(ids) for queue, ids in chosen.items()},
            by_name=dict(names.most_common()),
            dry_run=dry_run if count else "Nothing is selected.",
            cut_off=cut_off,
        )
        self._selections[shown.id] = FixedSelection(shown, chosen)
        while len(self._selections) > MAX_SELECTIONS:
            self._selections.popitem(last=False)
        return shown


def _row(letter: Letter) -> MessageRow:
    return MessageRow(
        queue=letter.queue,
        id=letter.message_id,
        name=letter.name or None,
        state="dead",
        attempt=letter.runs,
        added_ms=letter.added_ms,
        died_ms=letter.died_ms,
        size_bytes=letter.size,
        error=letter.error or letter.reason,
        letter_id=letter.id,
    )
