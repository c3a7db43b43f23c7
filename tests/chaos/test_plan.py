"""The plan of a long run: the seed decides it, and every fault gets its turn."""

from __future__ import annotations

from itertools import islice

from tests.chaos.nemeses import NEMESES
from tests.chaos.plan import TOGETHER, cells, episodes
from tests.chaos.subjects import SUBJECTS

ALL = list(SUBJECTS.values()), list(NEMESES.values())


def test_the_same_seed_gives_the_same_episodes() -> None:
    assert list(islice(episodes(*ALL, 7), 50)) == list(islice(episodes(*ALL, 7), 50))
    assert list(islice(episodes(*ALL, 7), 50)) != list(islice(episodes(*ALL, 8), 50))


def test_each_fault_is_done_to_each_protocol_before_any_is_done_again() -> None:
    pairs = {(cell.subject.name, cell.nemeses[0].name) for cell in cells(*ALL, 1)}
    seen: set[tuple[str, str]] = set()
    for episode in episodes(*ALL, 1):
        found = {(episode.subject.name, nemesis.name) for nemesis in episode.nemeses}
        assert not found & seen
        seen |= found
        if seen == pairs:
            break


def test_an_episode_has_several_faults_and_those_apply() -> None:
    for episode in islice(episodes(*ALL, 1), 40):
        assert 1 <= len(episode.nemeses) <= TOGETHER
        assert all(nemesis.applies(episode.subject) for nemesis in episode.nemeses)


def test_a_composed_cell_has_its_fault_and_others_that_apply() -> None:
    single, composed = list(cells(*ALL, 1)), list(cells(*ALL, 1, compose=2))
    assert [each.nemeses[0] for each in composed] == [each.nemeses[0] for each in single]
    for cell in composed:
        assert len(set(cell.nemeses)) == 2
        assert all(nemesis.applies(cell.subject) for nemesis in cell.nemeses)
    assert composed == list(cells(*ALL, 1, compose=2))
    assert len({cell.nemeses for cell in composed}) > len(composed) / 2


def test_a_plan_without_a_fault_that_applies_ends() -> None:
    assert list(episodes([SUBJECTS["kqueue"]], [NEMESES["kill-redis"]], 1)) == []


def test_brokers_without_redis_get_no_faults_of_redis() -> None:
    names = {cell.nemeses[0].name for cell in cells([SUBJECTS["kqueue"]], ALL[1], 1)}
    assert "kill-server" in names
    assert not {name for name in names if "redis" in name or "disk" in name}
