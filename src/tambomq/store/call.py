"""A round trip to Redis, described but not made.

An operation of a protocol is a pure function that returns a `Call`: what to
send and how to read the reply. `Store` and `AsyncStore` make the trip. An
operation that needs several trips is a `Plan`: a generator that yields the
calls of one trip and is sent their outcomes.

This file knows nothing of sockets, and neither do the operations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from tambomq.errors import TamboError

T = TypeVar("T")
Arg: TypeAlias = bytes | str | int | float


class Script(msgspec.Struct, frozen=True):
    """A Lua file and the name Redis knows it by."""

    name: str
    source: str
    sha: str


def load_script(package: str, name: str, *parts: str) -> Script:
    """Read ``scripts/<name>.lua`` of *package*, with ``scripts/parts/<part>.lua`` before it.

    A part that *package* does not have is the store's, for all protocols.
    """
    folder = resources.files(package).joinpath("scripts")
    source = folder.joinpath(f"{name}.lua").read_text("utf-8")
    if parts:
        shebang = source[: source.index("\n") + 1] if source.startswith("#!") else ""
        heads = [_part(folder, f"{part}.lua") for part in parts]
        source = "\n".join((shebang + heads[0], *heads[1:], source.removeprefix(shebang)))
    # Redis names a script by its SHA-1; nothing here is a secret.
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _part(folder: Traversable, file: str) -> str:
    own = folder.joinpath("parts", file)
    shared = resources.files("tambomq.store").joinpath("scripts", "parts", file)
    return (own if own.is_file() else shared).read_text("utf-8")


# A Struct, not a dataclass: a call is made for every message, and a frozen
# dataclass of five fields takes 0.6 µs to build where this takes 0.1.
class Call(msgspec.Struct, Generic[T], frozen=True):
    """What to send to Redis, and how to read what comes back.

    *repeatable*: making the call twice has the effect of making it once, so a
    store may repeat it when the connection broke before the reply came.
    """

    verb: Script | str | tuple[Arg, ...]
    """A script, a command, or a command with what it wants before its keys."""
    keys: tuple[str, ...]
    args: tuple[Arg, ...]
    decode: Callable[[Any], T]
    repeatable: bool = False
    packed: bytes | None = None
    """The same as bytes, from who makes many of a kind: see `template`."""

    @property
    def parts(self) -> tuple[Arg, ...]:
        """The command, as Redis takes it; a script by its name."""
        if isinstance(self.verb, str):
            return (*self.verb.split(), *self.keys, *self.args)
        if isinstance(self.verb, tuple):
            return (*self.verb, *self.keys, *self.args)
        return ("EVALSHA", self.verb.sha, len(self.keys), *self.keys, *self.args)

    @property
    def parts_with_source(self) -> tuple[Arg, ...]:
        """The command for a server that has forgotten the script."""
        if not isinstance(self.verb, Script):
            return self.parts
        return ("EVAL", self.verb.source, len(self.keys), *self.keys, *self.args)


def template(*words: Arg | None) -> bytes:
    """Return a command packed all but the words that change, for which `None` stands.

    ``template % (len(word), word, …)`` fills it: 0.4 µs, where packing 15 words takes 1.2.
    """
    text = b"*%d\r\n" % len(words)
    for word in words:
        if word is None:
            text += b"$%d\r\n%b\r\n"
        else:
            fixed = word if isinstance(word, bytes) else str(word).encode()
            text += b"$%d\r\n%b\r\n" % (len(fixed), fixed.replace(b"%", b"%%"))
    return text


Outcome: TypeAlias = Any | TamboError
"""What became of one call of a trip: its decoded reply, or the error instead."""

Plan: TypeAlias = Generator[Sequence[Call[Any]] | Iterator[Call[Any]], list[Outcome], T]
"""Trips that depend on each other: yields the calls of one, is sent their outcomes.

An iterator of calls lets the first be on their way while the last are still being made.
"""


def only(call: Call[T]) -> Plan[T]:
    """Return the plan of one trip with one *call*."""
    outcomes = yield (call,)
    result: T = results(outcomes)[0]
    return result


def results(outcomes: list[Outcome]) -> list[Any]:
    """Return *outcomes* if all are good; raise the first that is not."""
    for outcome in outcomes:
        if isinstance(outcome, TamboError):
            raise outcome
    return outcomes
