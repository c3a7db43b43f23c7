"""A sample of a crash matrix leaves out no row and no column, and all seeds together no field."""

from __future__ import annotations

from itertools import product

import pytest

from tests.spark import sampling

SEEDS = [f"{number:040x}" for number in range(200)]
SIZES = [(3, 8), (3, 3), (3, 6), (8, 3), (1, 4), (3, 1)]


@pytest.fixture(autouse=True)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAMBO_TEST_MATRIX", raising=False)


@pytest.mark.parametrize(("rows", "columns"), SIZES)
def test_each_sample_has_every_row_and_every_column(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int
) -> None:
    seen = set[tuple[int, int]]()
    for seed in SEEDS:
        monkeypatch.setenv("TAMBO_TEST_SEED", seed)
        drawn = sampling.pairs("m", range(rows), range(columns))
        assert {row for row, _ in drawn} == {*range(rows)}
        assert {column for _, column in drawn} == {*range(columns)}
        assert len(drawn) == max(rows, columns)
        seen |= set(drawn)
    assert seen == {*product(range(rows), range(columns))}


def test_one_seed_draws_one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(name: str = "m") -> list[tuple[int, int]]:
        return sampling.pairs(name, range(3), range(8))

    monkeypatch.delenv("TAMBO_TEST_SEED", raising=False)
    assert drawn() == drawn()
    assert len({tuple(drawn(f"m{n}")) for n in range(20)}) > 1


def test_the_whole_matrix_can_be_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(sampling.some("m", range(9), 3)) == 3
    monkeypatch.setenv("TAMBO_TEST_MATRIX", "all")
    assert sampling.pairs("m", range(3), range(8)) == [*product(range(3), range(8))]
    assert sampling.spread("m", "ab", [1, 2]) == [("a", [1, 2]), ("b", [1, 2])]
    assert sampling.some("m", range(9), 3) == [*range(9)]
