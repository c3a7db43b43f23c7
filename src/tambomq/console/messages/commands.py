"""The redis-cli commands that show what a message page shows. They only read.

Words are quoted for a POSIX shell. redis-cli passes its arguments on as they are, so every byte but
NUL can be given; a word with a NUL, or not UTF-8, is left out with its command.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from tambomq.console.model import QueueRef
from tambomq.store.endpoint import Endpoint
from tambomq.text import spelled_out

Commands: TypeAlias = list[tuple[str, str]]
"""What each shows, and the command."""

_REDIS_CLI: Final = "redis-cli"
_EXPLAIN: Final = "tambo explain"
_DEFAULT: Final = Endpoint()


def redis_commands(steps: Iterable[tuple[str, Sequence[str | int]]]) -> Commands:
    """Return what each step shows, and its words as a command of a shell."""
    return [
        (shows, command)
        for shows, words in steps
        if (command := shell_command(_REDIS_CLI, *words)) is not None
    ]


def explain_command(ref: QueueRef, id: str) -> Commands:
    """Return the command that shows all of it in one answer."""
    words = shell_command(str(ref), *(("--",) if id[:1] == "-" else ()), id)
    return [] if words is None else [("all of this in one answer", f"{_EXPLAIN} {words}")]


def on_server(commands: Commands, server: Endpoint) -> Commands:
    """Return *commands* so that they ask *server*, unless it is where they look anyway.

    Secrets are left out: ``redis-cli`` takes a password from ``REDISCLI_AUTH``.
    """
    flags = shell_command(*_redis_cli_flags(server))
    is_elsewhere = (server.path, server.nodes, server.db, server.tls, server.sentinels) != (
        (_DEFAULT.path, _DEFAULT.nodes, _DEFAULT.db, _DEFAULT.tls, _DEFAULT.sentinels)
    )
    url = shell_command("--redis-url", str(server)) if is_elsewhere else None
    asked = {
        _REDIS_CLI: " ".join(filter(None, (_REDIS_CLI, flags))),
        _EXPLAIN: " ".join(filter(None, (_EXPLAIN, url))),
    }
    return [(shows, _prefixed(command, asked)) for shows, command in commands]


def _redis_cli_flags(server: Endpoint) -> Iterator[str | int]:
    if server.path:
        yield from ("-s", server.path)
    elif server.nodes and not server.sentinels:
        (host, port), (usual, usual_port) = server.nodes[0], _DEFAULT.nodes[0]
        yield from ("-h", host) if host not in (usual, "localhost") else ()
        yield from ("-p", port) if port != usual_port else ()
        yield from ("-c",) if len(server.nodes) > 1 else ()
    yield from ("-n", server.db) if server.db else ()
    yield from ("--user", server.user) if server.user else ()
    if server.tls:
        yield "--tls"
        yield from ("--cacert", server.tls.ca) if server.tls.ca else ()


def _prefixed(command: str, asked: Mapping[str, str]) -> str:
    for program, words in asked.items():
        if command.startswith(program + " "):
            return words + command.removeprefix(program)
    return command


def shell_command(*words: str | int) -> str | None:
    """Return *words* quoted for a shell, on one line; `None` if they cannot be written so."""
    quoted = [_quoted(str(word)) for word in words]
    return None if None in quoted else " ".join(filter(None, quoted))


def _quoted(word: str) -> str | None:
    if "\0" in word or any("\ud800" <= c <= "\udfff" for c in word):
        return None
    if word.isprintable():
        return shlex.quote(word)
    # Control characters would run when pasted: a shell's $'…' spells them out.
    return "$'" + "".join(_spelled(c) for c in word) + "'"


def _spelled(char: str) -> str:
    if char in "'\\":
        return "\\" + char
    if char.isprintable():
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode())


def shown_name(text: str) -> str:
    """Return a name from Redis so that it can stand in a sentence of one line."""
    return spelled_out(text)
