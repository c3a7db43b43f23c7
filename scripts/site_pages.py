"""Hooks of mkdocs: pages of the repository that are not below docs/, and links between all pages.

In the repository, links are relative to files, so that they work on any git host. On the site the
pages of `OUTSIDE` have other names, and files that are no pages have none: links to those become
plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "benchmarks/README.md": "benchmarks.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:]+)\)")
_FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `OUTSIDE`."""
    for source, name in OUTSIDE.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page with links that are right on the site."""
    name = page.file.src_uri
    path = {new: old for old, new in OUTSIDE.items()}.get(name, f"docs/{name}")
    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _relinked(part, path) for part in parts)


def _relinked(text: str, path: str) -> str:
    def link(match: re.Match[str]) -> str:
        bang, words, target = match.groups()
        file, hash_, anchor = target.partition("#")
        if not file:
            return match[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if found in OUTSIDE:
            there = OUTSIDE[found]
        elif found.startswith("docs/"):
            there = found.removeprefix("docs/")
        else:
            return words
        here = OUTSIDE.get(path, path.removeprefix("docs/"))
        relative = posixpath.relpath(there, posixpath.dirname(here) or ".")
        return f"{bang}[{words}]({relative}{hash_}{anchor})"

    return _LINK.sub(link, text)
