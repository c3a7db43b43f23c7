"""Dead letters of a user with rights to some queues: its own selections, of its own queues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tambomq.access.directory import AccessOptions, UserDirectory
from tambomq.access.model import Right
from tambomq.console.actions.model import DeadLetterSummary, LetterGroup, LetterSelector
from tambomq.console.http.scope.actions import MAX_SELECTIONS, ScopedActions, Selections
from tambomq.console.http.scope.parts import QueueAccess
from tambomq.errors import AccessDenied, ActionRefused
from tests.access.users import Users
from tests.console.http.memory import NO_SERIES, ORDERS, PAYMENTS, MemoryActions, operation


class Scope:
    """The actions of several users on the same console."""

    def __init__(self, path: Path) -> None:
        self.users, self.actions, self.selections = Users(path), MemoryActions(), Selections()

    async def of(self, name: str, rights: list[Right], *queues: str) -> ScopedActions:
        token = self.users.add(name, rights, queues)
        directory = UserDirectory("The console", AccessOptions(str(self.users.path)))
        await directory.refresh()
        access = QueueAccess(directory.log_in(token))
        actions: Any = self.actions
        return ScopedActions(actions, access, self.selections)


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    return Scope(tmp_path / "users.toml")


def letters(queue: str, count: int) -> LetterGroup:
    return LetterGroup(
        id=queue, queue=queue, reason=f"of {queue}", shape="", name=None, count=count,
        first_ms=None, last_ms=None,
    )  # fmt: skip


async def test_a_summary_counts_the_queues_of_the_user(
    scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [letters(str(PAYMENTS), 5), letters(str(ORDERS), 2)]

    async def summary(*_: object) -> DeadLetterSummary:
        return DeadLetterSummary(
            at_ms=1,
            total=7,
            by_queue={each.queue: each.count for each in groups},
            by_reason={each.reason: each.count for each in groups},
            groups=groups,
            per_minute=NO_SERIES,
            looked_at=7,
        )

    monkeypatch.setattr(scope.actions, "summary", summary)
    found = await (await scope.of("a", ["look"], "rsmq:*")).summary()
    assert (found.total, found.looked_at) == (2, 2)
    assert found.by_queue == {str(ORDERS): 2}
    assert found.by_reason == {f"of {ORDERS}": 2}
    assert [each.queue for each in found.groups] == [str(ORDERS)]
    assert (await (await scope.of("b", ["look"], "*")).summary()).total == 7


async def test_letters_are_selected_in_one_queue(scope: Scope) -> None:
    actions = await scope.of("a", ["manage"], "rsmq:*")
    with pytest.raises(ActionRefused, match="choose a queue"):
        await actions.select(LetterSelector())
    with pytest.raises(ActionRefused, match="choose a queue"):
        await actions.letters(LetterSelector(), None, 50)
    with pytest.raises(AccessDenied):
        await actions.select(LetterSelector(queue=str(PAYMENTS)))
    assert (await actions.select(LetterSelector(queue=str(ORDERS)))).id == "s1"
    assert actions.replay("s1").id == "s1"
    assert actions.discard("s1", 0).id == "s1"


async def test_a_selection_of_another_user_cannot_be_used(scope: Scope) -> None:
    await (await scope.of("a", ["manage"], "rsmq:*")).select(LetterSelector(queue=str(ORDERS)))
    other = await scope.of("b", ["manage"], "rsmq:*")
    with pytest.raises(ActionRefused, match="select again"):
        other.replay("s1")
    with pytest.raises(ActionRefused, match="select again"):
        other.discard("s1", 0)
    with pytest.raises(ActionRefused, match="select again"):
        await other.edit_and_replay("s1", "x", "text")
    with pytest.raises(ActionRefused, match="select again"):
        await other.selected_body("s1")
    everything = await scope.of("c", ["manage"], "*")
    assert everything.replay("s1").id == "s1"


async def test_an_operation_on_a_queue_of_others_is_not_known(scope: Scope) -> None:
    scope.actions.running = [operation("o1")]
    actions = await scope.of("a", ["manage"], "rsmq:*")
    assert actions.operations() == []
    for act in (actions.undo, actions.stop_operation):
        with pytest.raises(ActionRefused, match="not known"):
            await act("o1")
    own = await scope.of("b", ["manage"], str(PAYMENTS))
    assert [each.id for each in own.operations()] == ["o1"]
    assert (await own.undo("o1")).id == "o1"


def test_only_so_many_selections_are_known() -> None:
    selections = Selections()
    for number in range(MAX_SELECTIONS + 1):
        selections.add(str(number), "a", str(ORDERS))
    assert selections.queue_of(str(MAX_SELECTIONS), "a") == ORDERS
    with pytest.raises(ActionRefused):
        selections.queue_of("0", "a")
