"""Rules about Lua scripts. CONTRIBUTING.md shows the header they demand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tests.rules import tree

BODY_LINES = 80

_SECTION = re.compile(r"^-- (KEYS|ARGV|REPLY|NEEDS) +(\S.*)$")
_MORE = re.compile(r"^--       (\S.*)$")
_COMMENT = re.compile(r"--[^\n]*")
_STRING = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"")
_SPELLED_KEY = re.compile(r"""['"](rsmq:|\{chasqui|\{tambo|[A-Z]+_['"])""")


@dataclass(frozen=True, slots=True)
class Declared:
    """The KEYS or ARGV that a header declares: single names, then the repeated group."""

    single: tuple[str, ...]
    repeated: tuple[str, ...]


def broken_contracts(root: Path) -> list[str]:
    """A script's header declares exactly the KEYS and ARGV that its body uses."""
    return [
        f"{path.relative_to(root)}: {fault}"
        for path in tree.files(root / "src", ".lua")
        for fault in _faults(path, *_split(path.read_text()))
    ]


def too_long(root: Path) -> list[str]:
    """A script's body fits on a screen."""
    return [
        f"{path.relative_to(root)} has a body of {lines} lines; {BODY_LINES} are enough"
        for path in tree.files(root / "src", ".lua")
        if (lines := _split(path.read_text())[1].strip().count("\n") + 1) > BODY_LINES
    ]


def _split(text: str) -> tuple[list[str], str]:
    """The header's lines, without a shebang, and the body."""
    lines = text.splitlines()
    if lines and lines[0].startswith("#!lua"):
        del lines[0]
    header = list(takewhile(lambda line: line.startswith("--"), lines))
    return header, "\n".join(lines[len(header) :])


def _faults(path: Path, header: list[str], body: str) -> Iterator[str]:
    if not header or not header[0].startswith(f"-- {path.stem}: "):
        yield f"the header begins with '-- {path.stem}: ' and what it does"
    sections = [match[1] for line in header if (match := _SECTION.match(line))]
    if sections[-1:] == ["NEEDS"]:
        del sections[-1]
    is_part = path.parent.name == "parts"
    if sections != ([] if is_part else ["KEYS", "ARGV", "REPLY"]):
        yield "a script's header declares KEYS, ARGV and REPLY, in this order; a part's does not"
    code = _COMMENT.sub("", body)
    if _SPELLED_KEY.search(code):
        yield "a key is spelled; keys come through KEYS"
    code = _STRING.sub("''", code)
    if is_part:
        if re.search(r"\b(KEYS|ARGV)\[\d", code):
            yield "a part takes what it needs as parameters, not from KEYS and ARGV"
        return
    for table in ("KEYS", "ARGV"):
        yield from _misuse(table, _declared(table, header), code)


def _declared(table: str, header: list[str]) -> Declared:
    single: list[str] = []
    repeated: tuple[str, ...] = ()
    for line in _section(table, header):
        name, *rest = re.split(r" {2,}", line)
        if name == "none":
            continue
        if name.endswith("…") or rest[:1] == ["…"]:
            repeated = tuple(name.rstrip(" …").split(", "))
        else:
            single.append(name)
    return Declared(tuple(single), repeated)


def _section(table: str, header: list[str]) -> Iterator[str]:
    inside = False
    for line in header:
        if match := _SECTION.match(line):
            inside = match[1] == table
            if inside:
                yield match[2]
        elif inside and (match := _MORE.match(line)):
            yield match[1]


def _misuse(table: str, declared: Declared, code: str) -> Iterator[str]:
    used = {int(n) for n in re.findall(rf"\b{table}\[(\d+)\]", code)}
    expected = set(range(1, len(declared.single) + 1))
    whole = re.search(rf"#{table}\b|\b(?:unpack|ipairs)\({table}\b", code)
    if declared.repeated:
        if not whole:
            yield f"{table} is declared with …, but the body never goes through all of it"
        # The body may use the first of the repeated ones by index.
        used -= {len(expected) + n for n in range(1, len(declared.repeated) + 1)}
    elif whole or re.search(rf"\b{table}\[[^\d\]]", code):
        yield f"the body goes through all of {table}, but the header declares no …"
    if used != expected:
        yield f"{table}: declared {sorted(expected)}, used {sorted(used)}"
    for name in declared.single:
        if not re.search(rf"\b{re.escape(name)}\b", code):
            yield f"the body has no name {name!r}, which {table} declares"
