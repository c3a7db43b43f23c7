"""docs/reliability.md shows all faults and protocols, and the README's promises link to them."""

from __future__ import annotations

import re

from tests.chaos.member import ROOT
from tests.chaos.nemeses import GROUPS, NEMESES
from tests.chaos.subjects import SUBJECTS

PAGE = (ROOT / "docs/reliability.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
PROMISES = README.partition("## What you can rely on")[2].partition("\n## ")[0]
FAULTS = re.compile(r"\b(killed|killing|dies|frozen|crash|reply was lost|stalled|lost reply)\b")
"""A promise with one of these words is about what the suite does."""


def _matrix(title: str) -> list[list[str]]:
    """The rows of the table below a heading, without that of dashes."""
    section = PAGE.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in rows if "---" not in row
    ]


def test_the_matrix_has_a_cell_for_each_protocol_and_each_fault_that_it_may_have() -> None:
    for title, nemeses in GROUPS.items():
        header, *rows = _matrix(title)
        assert header == ["fault", *SUBJECTS]
        assert [row[0] for row in rows] == [nemesis.name for nemesis in nemeses]
        for row, nemesis in zip(rows, nemeses, strict=True):
            for cell, subject in zip(row[1:], SUBJECTS.values(), strict=True):
                assert bool(cell) == nemesis.applies(subject), (nemesis.name, subject.name)


def test_each_verdict_of_the_matrix_is_ok_and_shows_something() -> None:
    shown = re.compile(r"ok: [1-9][0-9]*×, [1-9][0-9,]*(, [0-9,]+ lost)?")
    for title in GROUPS:
        _, *rows = _matrix(title)
        for row in rows:
            assert all(not cell or shown.fullmatch(cell) for cell in row[1:]), row


def test_each_fault_is_explained() -> None:
    faults = PAGE.partition("\n## Faults\n")[2].partition("\n## ")[0]
    words = set(re.findall(r"`([a-z-]+)…?[a-z-]*`", faults))
    for name in NEMESES:
        parts = name.split("-")
        starts = {"-".join(parts[:end]) for end in range(1, len(parts) + 1)} | {f"-{parts[-1]}"}
        starts |= {f"{parts[0]}-"}
        assert starts & words, name


def test_each_promise_about_faults_links_to_its_lines_of_the_matrix() -> None:
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and "tests/" in line]
    assert len(rows) > 25
    anchors = {title.lower().replace(" ", "-") for title in GROUPS}
    for row in rows:
        linked = set(re.findall(r"docs/reliability\.md#([a-z-]+)", row))
        assert linked <= anchors | {"failover"}, row
        words = " ".join(re.findall(r"\w+", row.split("|")[1].lower()))
        if FAULTS.search(words):
            assert linked & anchors, row
