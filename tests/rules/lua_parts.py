"""Rules about the parts of Lua scripts: NEEDS lists exactly the parts that the body uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.rules import tree

_SHARED = ("bulk", "journal")
_NEEDS = re.compile(r"^-- NEEDS +(\S.*)$", re.MULTILINE)
_COMMENT = re.compile(r"#!.*|--[^\n]*")
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_CALL = re.compile(r"(?<![.:\w])([A-Za-z_]\w*)\(")
_TOP_LEVEL = re.compile(r"^local (?:function (\w+)|([\w, ]+?) =)", re.MULTILINE)
_LOCAL = re.compile(r"\blocal (?:function )?([\w, ]+)|\bfor ([\w, ]+) in\b")
_PARAMETERS = re.compile(r"\bfunction ?\w*\(([\w, ]*)")
_WORDS = """
and assert elseif error for function if in ipairs next not or pairs pcall return select
setmetatable tonumber tostring type unpack until while
"""
_LANGUAGE = frozenset(_WORDS.split())


def misused_parts(root: Path) -> list[str]:
    """A header's NEEDS names the parts whose functions the body calls, and no others."""
    return [
        f"{path.relative_to(root)}: {fault}"
        for path in tree.files(root / "src", ".lua")
        for fault in _faults(root / "src" / "tambomq", path)
    ]


def _faults(package: Path, path: Path) -> Iterator[str]:
    text = path.read_text()
    code, known = _code(text), set[str]()
    for need in _needs(text):
        found = _find(package, path, need)
        if not found:
            yield f"NEEDS {need}, and there is no such part"
        elif path in found:
            yield f"NEEDS {need}, which is this part itself"
        names = {name for part in found for name in _defined(_code(part.read_text()))}
        if found and not any(re.search(rf"(?<![.:\w]){name}\b", code) for name in names):
            yield f"NEEDS {need}, and uses nothing of it"
        known |= names
    lists = [*map(" ".join, _LOCAL.findall(code)), *_PARAMETERS.findall(code)]
    own = {name for names in lists for name in re.split(r"[, ]+", names)}
    for name in sorted(set(_CALL.findall(code)) - known - own - _LANGUAGE):
        yield f"calls {name}, which no part that it NEEDS defines"


def _code(text: str) -> str:
    return _STRING.sub("''", _COMMENT.sub("", text))


def _needs(text: str) -> list[str]:
    match = _NEEDS.search(text)
    return match[1].split(", ") if match else []


def _defined(code: str) -> Iterator[str]:
    for function, names in _TOP_LEVEL.findall(code):
        yield from [function] if function else names.split(", ")


def _find(package: Path, path: Path, need: str) -> list[Path]:
    """The part, or its variants, as `load_script` looks for it."""
    folders = [each for each in path.parents if each.is_relative_to(package)]
    for folder in (*folders, *(package / each for each in _SHARED)):
        if found := sorted(folder.glob(f"scripts/parts/{need}.lua")):
            return found
    return []
