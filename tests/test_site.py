"""The website of the documentation: every page is in its navigation, and it needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "mkdocs.yml").read_text()
_PAGE = re.compile(r"^ +- (?:[^:\n]+: )?([\w/.-]+\.md)$|^  - ([\w/.-]+\.md)$", re.MULTILINE)
_FOREIGN = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(https?:)?//[^>]*>")


def test_every_page_is_in_the_navigation_once() -> None:
    nav = CONFIG.partition("\nnav:\n")[2]
    listed = [first or second for first, second in _PAGE.findall(nav)]
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    outside = {
        "readme.md",
        "changelog.md",
        "contributing.md",
        "security-policy.md",
        "benchmarks.md",
    }
    assert sorted(listed) == sorted(pages | outside)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="`make site` installs mkdocs")
def test_the_site_is_built_without_warnings_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    assert [page.name for page in pages if _FOREIGN.search(page.read_text())] == []
