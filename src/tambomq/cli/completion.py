"""``tambo completion``: what a shell needs to complete commands, options and queue names.

Names are looked up in the server while a person types: quickly, or not at all, and silently.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    _resolve_context,
    _resolve_incomplete,
    add_completion_class,
)

from tambomq.cli.output import emit_json, example, json_option, verbose_option
from tambomq.store.endpoint import URL

PROG: Final = "tambo"
VARIABLE: Final = "_TAMBO_COMPLETE"
_ENV: Final = ("CHASQUI_REDIS_URL", "TAMBO_REDIS_URL", "REDIS_URL")
_WITHIN_S: Final = 1.0
_MAX_NAMES: Final = 200
# What no shell takes for anything but text.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:@%+/-]{1,200}", re.ASCII)
_QUEUE_PARAMS: Final = ("queue", "queues", "names", "source", "target")
_OF_GROUP: Final = {"rsmq": "rsmq", "chasqui": "chasqui", "gomq": "gomq"}
"""Groups whose commands take the name alone; the others take it after its protocol."""
_WITH_PROTOCOL: Final = ("explain", "pipeline")


@click.command(
    epilog=example(
        'eval "$(tambo completion bash)"            in ~/.bashrc',
        'eval "$(tambo completion zsh)"             in ~/.zshrc, after compinit',
        "tambo completion fish > ~/.config/fish/completions/tambo.fish",
    )
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@json_option
@verbose_option
def completion(shell: str, *, as_json: bool) -> None:
    """Print the script with which SHELL completes commands, options and queue names."""
    # Not `get_completion_class`: a program may ask for a script without completing anything.
    root = click.get_current_context().find_root().command
    kind = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}[shell]
    made = kind(root, {}, PROG, VARIABLE)
    # `source` would run bash to see its version.
    script = made.source_template % made.source_vars()
    if as_json:
        emit_json({"shell": shell, "script": script})
    else:
        click.echo(script)


class _QueueNames(ShellComplete):
    """Completes names of queues where click has nothing to offer."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return what may stand in place of *incomplete* after *args*; errors find nothing."""
        try:
            found = super().get_completions(args, incomplete)
            return found or list(self._queues(args, incomplete))
        except Exception:  # noqa: BLE001  (a person is typing: say nothing)
            return []

    def _queues(self, args: list[str], incomplete: str) -> Iterator[CompletionItem]:
        with _resolve_context(self.cli, dict(self.ctx_args), self.prog_name, list(args)) as ctx:
            param, incomplete = _resolve_incomplete(ctx, list(args), incomplete)
        group = args[0] if args else ""
        if not isinstance(param, click.Parameter) or not _is_queue(param, group):
            return
        protocol = _OF_GROUP.get(group)
        if protocol is None and group not in _WITH_PROTOCOL:
            return
        names = asyncio.run(_names(_server(args)))
        wanted = (
            name if protocol is None else name.removeprefix(f"{protocol}:")
            for name in names
            if protocol is None or name.startswith(f"{protocol}:")
        )
        plain = [name for name in wanted if _PLAIN.fullmatch(name) and name.startswith(incomplete)]
        yield from map(CompletionItem, plain[:_MAX_NAMES])


class BashQueues(_QueueNames, BashComplete):
    """For bash."""


class ZshQueues(_QueueNames, ZshComplete):
    """For zsh."""


class FishQueues(_QueueNames, FishComplete):
    """For fish, whose script cuts a help text at its first comma."""

    def format_completion(self, item: CompletionItem) -> str:
        """Return *item* as the script reads it."""
        text = item.help.replace(",", ";") if item.help else None
        return super().format_completion(CompletionItem(item.value, item.type, text))


def install() -> None:
    """Complete names of queues too, from now on."""
    for kind in (BashQueues, ZshQueues, FishQueues):
        add_completion_class(kind)


def _is_queue(param: click.Parameter, group: str) -> bool:
    # A name is the queue's in RSMQ, and the job's in ChasquiMQ; GOMQ calls a queue a key.
    is_own_word = (group, param.name) in (("rsmq", "name"), ("gomq", "key"))
    return is_own_word or param.name in _QUEUE_PARAMS


def _server(args: Sequence[str]) -> str:
    """Return the server of the line that is typed, or of the environment."""
    for place, word in enumerate(args):
        if word == "--redis-url" and place + 1 < len(args):
            return args[place + 1]
        if word.startswith("--redis-url="):
            return word.partition("=")[2]
    return next(filter(None, map(os.environ.get, _ENV)), URL)


async def _names(url: str) -> list[str]:
    """Return the queues of the server at *url*, with their protocols; none if it is slow."""
    from tambomq.console.read.reader import Reader
    from tambomq.store.aio import AsyncStore

    store: Any = AsyncStore(url, patience_s=0)
    try:
        async with asyncio.timeout(_WITHIN_S):
            return [str(ref) for ref in await Reader(store).refs()]
    finally:
        await store.close()
