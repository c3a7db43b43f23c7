"""Rules about words: plain names, one meaning for a class name, a complete glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.rules import tree

# Private words that named something before, and what to say instead. No class, function, parameter,
# variable, attribute or Lua variable has one of them as its name.
BANNED: dict[str, str] = {
    "agenda": "FirePlan, plan_fires",
    "astray": "wrong_claim",
    "coming": "inbound",
    "death": "DeadLettered, letter",
    "desk": "InteractiveQueue",
    "door": "component",
    "doubts": "ambiguous_jobs",
    "duties": "RunOptions, tasks",
    "ears": "PubSub",
    "fate": "outcome",
    "fates": "outcomes",
    "floor": "HandlerPool, first_batch",
    "granted": "acquired, allowed",
    "grave": "DeadLetterQueue",
    "greet": "handshake",
    "hand": "InFlight",
    "haul": "ReceiveResult",
    "hearing": "Subscription",
    "intake": "Fetcher",
    "lane": "AioConnection",
    "life": "lifecycle",
    "lives": "lifecycles",
    "loose": "require_unheld",
    "manner": "CliState",
    "mark": "claim_token, offset, chunk_token, marker",
    "nobody": "what is absent: unused_port, no_subscription",
    "office": "LeaderConfig",
    "outbox": "Settler",
    "pace": "FetchOptions, rate",
    "parcel": "Settlement",
    "production": "Producer",
    "room": "BrokerState, wakeup, free_slots",
    "rouse": "notify",
    "seat": "ConsumerContext",
    "shed": "release_queued",
    "somebody": "what it is: owner, consumer",
    "stage": "DemoDisplay",
    "tell": "by content: message, options, event",
    "tells": "by content: message, options, event",
    "told": "by content: message, options, event",
    "trip": "RoundTrip",
    "where": "keys",
    "who": "what it is: owner, consumer, peer",
    "wishes": "SubscriptionSet",
    "yard": "DeadLetterQueues",
}
# Not even as a part of a name, so not in the sentence that a test is called.
_BANNED_PARTS = {"astray", "fate", "fates", "nobody", "somebody", "tell", "tells", "told", "who"}
# Fine as names of variables; as names of classes they said nothing.
_BANNED_CLASSES = {
    *("bench", "end", "following", "given", "holding", "leaving", "load", "patience", "pick"),
    *("place", "rules", "standing", "term", "wanted", "wire"),
}
# "folder:name", and why it may stand there.
EXCEPTIONS = {
    "src/tambomq/chasqui/:where": "public in `replay_dlq`, as SQL and the engine have it",
    "src/tambomq/cli/chasqui/:where": "the option --where",
    "src/tambomq/bulk/:where": "a field of redrives as they are stored in Redis, and of --where",
    "tests/chasqui/:where": "calls `replay_dlq`",
    "tests/pipeline/:where": "writes redrives as they are stored",
    "benchmarks/:floor": "the smallest ratio a benchmark accepts; its record is read by scripts",
}

# The same class in several protocols. Every other name is unique in the package.
TWINS = {
    "Keys": "the keys of a queue, in each protocol with a namespace",
    "Message": "what clients receive, as the specification of each protocol calls it",
    "Producer": "adds jobs (ChasquiMQ), sends messages (KqueueMsgQ)",
    "Series": "the lines of a chart, in the console and in reports",
    "Settler": "reports the outcomes of a worker's deliveries",
    "WorkerControl": "what both kinds of workers offer to those who run them",
    "WorkerStats": "what a worker has done",
}

# Nouns of programming and of message queues in general, which the glossary does not explain.
_COMMON = """
    access action address admin app argument attribute authenticator awaitable backoff body
    bound bucket caller client code column command config connection context control count
    counter day deadline decoder decorator detail dir directory display field file flag format
    formatter function group handle head health heartbeat host http identity info java job
    keyspace kind kit layout length limit line list listener location log logger message method
    metric micro name notifier observer offset option order output override overview parameter
    partition path pattern payload pipeline point policy poller pool port printer process
    producer progress provider pub query queue range reason ref reply report reporter request
    resolver retry row rsmq rule scan schedule scope second secret selector sequence server
    servicer set setting size sizer slot space span spec stat state status stream sub summary
    table task text thread timeout timer tls total tracing transition type url value waiter
    window worker writer
"""
COMMON = set(_COMMON.split())

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LUA_NAMES = re.compile(r"\b(?:local|for)\s+(?!function\b)([\w, ]+?)\s*(?:=|\bin\b|\n)")
_LUA_FUNCTION = re.compile(r"\bfunction\s+(\w*)\s*\(([^)]*)\)")
_TERM = re.compile(r"^\| ([^|]+) \|", re.MULTILINE)


def banned_names(root: Path) -> list[str]:
    """Nothing is named with a private word, in Python or in Lua."""
    return [
        f"{path} calls something {name}: say {BANNED.get(word, 'what it is')}"
        for path, names in _named(root)
        for name, is_class in sorted(names)
        if (word := _banned_word(name, is_class=is_class)) and not _is_excepted(path, word)
    ]


def _named(root: Path) -> Iterator[tuple[str, set[tuple[str, bool]]]]:
    for path, module in tree.modules(root, "src/", "tests/", "benchmarks/", "scripts/"):
        yield path, set(_python_names(module))
    for file in tree.files(root, ".lua"):
        yield file.relative_to(root).as_posix(), {(n, False) for n in _lua_names(file.read_text())}


def _python_names(module: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield each name that a module gives, and whether it is a class."""
    for node in ast.walk(module):
        match node:
            case ast.ClassDef(name=name):
                yield name, True
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.arg(arg=name)
                | ast.keyword(arg=str(name))
                | ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
            ):
                yield name, False


def _lua_names(script: str) -> Iterator[str]:
    code = re.sub(r"--.*", "", script)
    for names in _LUA_NAMES.findall(code):
        yield from re.findall(r"\w+", names)
    for function, parameters in _LUA_FUNCTION.findall(code):
        yield from re.findall(r"\w+", f"{function} {parameters}")


def _banned_word(name: str, *, is_class: bool) -> str | None:
    words = _words(name)
    if "_".join(words) in BANNED or (is_class and "_".join(words) in _BANNED_CLASSES):
        return "_".join(words)
    return next((word for word in words if word in _BANNED_PARTS), None)


def _is_excepted(path: str, word: str) -> bool:
    folders = (each.rpartition(":") for each in EXCEPTIONS)
    return any(path.startswith(folder) and word == name for folder, _, name in folders)


def doubled_classes(root: Path) -> list[str]:
    """A class name stands for one thing in the package, or for twins."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, module in tree.modules(root, "src/"):
        for name in tree.classes(module):
            places[name].append(path)
    doubled = {name: paths for name, paths in places.items() if len(paths) > 1}
    return [
        *(f"{name}: {', '.join(paths)}" for name, paths in doubled.items() if name not in TWINS),
        *(f"{name} needs no row in TWINS" for name in TWINS if name not in doubled),
    ]


def unexplained_nouns(root: Path) -> list[str]:
    """The noun at the end of a class name is a row of the glossary, or a common one.

    Of `LeaseHolder`, "lease holder" or "holder" has a row. Errors have their own page.
    """
    terms = set(_terms((root / "docs/glossary.md").read_text()))
    return [
        f"{path}: {name} ends with no term of docs/glossary.md and no common noun"
        for path, name in _public_classes(root)
        if terms.isdisjoint(_endings(name)) and COMMON.isdisjoint(_singular(_words(name)[-1]))
    ]


def _terms(glossary: str) -> Iterator[str]:
    for row in _TERM.findall(glossary):
        yield from (term.strip("` ").lower().replace("-", " ") for term in row.split(", "))


def _public_classes(root: Path) -> Iterator[tuple[str, str]]:
    known = set(tree.classes(ast.parse((root / "src/tambomq/errors.py").read_text())))
    for path, module in tree.modules(root, "src/"):
        for name, node in tree.classes(module).items():
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            is_error = bases & known or any(b.endswith(("Error", "Exception")) for b in bases)
            if not name.startswith("_") and name not in known and not is_error:
                yield path, name


def _endings(name: str) -> Iterator[str]:
    words = _words(name)
    for first in range(len(words)):
        for last in _singular(words[-1]):
            yield " ".join([*words[first:-1], last])


def _singular(word: str) -> Iterable[str]:
    return {word, word.removesuffix("s"), re.sub("sses$", "ss", word), re.sub("ies$", "y", word)}


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]
