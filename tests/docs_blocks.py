"""The parser of documentation pages: fenced blocks, and the commands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPARK_COMMAND = re.compile(r"\btambo pipeline (?:run|report|sql|replay|dlq redrive)\b")


class Untrue(AssertionError):
    """The page says something that does not happen."""


@dataclass(frozen=True, slots=True)
class Block:
    """What stands between two fences."""

    language: str
    text: str
    line: int
    output: str = "…"
    """Of commands to copy: the ``text`` block right behind them, if there is one."""


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    matches = list(_FENCE.finditer(text))
    found = [Block(match[1], match[2], text.count("\n", 0, match.start()) + 2) for match in matches]
    for i, (match, after) in enumerate(pairwise(matches)):
        if (match[1], after[1]) == ("sh", "text") and not text[match.end() : after.start()].strip():
            found[i] = replace(found[i], output=after[2])
    fences = sum(line.lstrip().startswith("```") for line in text.splitlines())
    if fences != 2 * len(found):
        raise Untrue("a fence is indented, or not closed")
    return found


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with the output below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = re.sub(r"\\\n *", "", part).partition("\n")
        yield command, output


def copied(text: str) -> list[str]:
    """Return the commands of a block to copy, one for each line that is not continued."""
    return re.sub(r"\\\n *", "", text).splitlines()


def spark_commands(text: str) -> list[str]:
    """Return the commands of a page that start Spark."""
    shown = blocks(text)
    commands = [
        command
        for block in shown
        if block.language == "console"
        for command, _ in sessions(block.text)
    ]
    commands += [line for block in shown if block.language == "sh" for line in copied(block.text)]
    return [command for command in commands if _SPARK_COMMAND.search(command)]


def uses_spark(text: str) -> bool:
    """Whether a page that says *text* has to have a Spark session."""
    code = [block.text for block in blocks(text) if block.language == "python"]
    return any("tambomq.spark" in each for each in code) or bool(spark_commands(text))
