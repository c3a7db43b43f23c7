"""Rules about every file of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.rules import tree

DECISION_LINES = 40

# Written so that this file does not match itself.
_PLACES = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|proxy\.golang\.org|maven\.org|deb\.debian\.org"
    r"|(?<![\w.])/(root|work|home/\w+|Users/\w+|opt/pypi)/"
)


def places_named(root: Path) -> list[str]:
    """Packages come from wherever the user's tools look; files lie wherever the user put them."""
    return [
        f"{path.relative_to(root)}:{number} names {found[0]!r}"
        for path in tree.files(root)
        for number, line in _lines(path)
        if (found := _PLACES.search(line))
    ]


def long_decisions(root: Path) -> list[str]:
    """A decision record that needs a second page records more than one decision."""
    folder = root / "docs" / "adr"
    return [
        f"{path.relative_to(root)} has {lines} lines; {DECISION_LINES} are enough"
        for path in (tree.files(folder, ".md") if folder.exists() else ())
        if (lines := path.read_text().count("\n")) > DECISION_LINES
    ]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return
    yield from enumerate(text.splitlines(), 1)
