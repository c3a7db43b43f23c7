"""Finds what ``tambo work`` runs: `Jobs`, `Worker` and `RsmqWorker` objects in modules.

A class is looked up where it would have been imported from, and only if it was: whoever made an
object of it has imported it, and importing all three here would slow down every start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from tambomq.errors import SettingsError
from tambomq.runtime.observer import RunObserver
from tambomq.store.endpoint import Endpoint
from tambomq.work.messages import TargetInfo
from tambomq.work.options import WorkOptions
from tambomq.work.process.imports import import_module

if TYPE_CHECKING:
    from tambomq.chasqui.worker.in_flight import EntryLease

_CLASSES: Final = {
    "Jobs": "tambomq.jobs",
    "Worker": "tambomq.chasqui.worker.worker",
    "RsmqWorker": "tambomq.rsmq.worker.worker",
}
KINDS: Final = "Jobs, Worker or RsmqWorker"


class ManagedWorker(Protocol):
    """The interface of `Worker` and `RsmqWorker` that a process uses."""

    observer: RunObserver | None
    concurrency: int
    grace_s: float

    @property
    def name(self) -> str:
        """The queue."""

    @property
    def endpoint(self) -> Endpoint:
        """The server."""

    @property
    def in_flight(self) -> int:
        """Jobs that were read and are not settled."""

    @property
    def is_consuming(self) -> bool:
        """Whether it reads as it should, or has a reason not to read."""

    @property
    def last_fetch_at(self) -> float | None:
        """When it last read from Redis, on the monotonic clock."""

    async def run(self) -> None:
        """Work until `stop`; if cancelled, give running jobs back."""

    def stop(self) -> None:
        """Read nothing more and finish what runs."""

    def pause_fetching(self) -> None:
        """Read nothing more, and go on with what was read."""


class WorkTarget(msgspec.Struct, frozen=True):
    """An object to be run, and where it was found."""

    source: str
    """``module:object``."""
    kind: str
    found: Any

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return str(self.found.queue_name if self.kind == "Jobs" else self.found.name)

    @property
    def jobs(self) -> Any:
        """The `Jobs` that it runs; `None` for a worker with a handler."""
        jobs = self.found if self.kind == "Jobs" else getattr(self.found, "jobs", None)
        return jobs if _kind(jobs) == "Jobs" else None

    def worker(
        self,
        options: WorkOptions,
        observer: RunObserver,
        on_consumer: Callable[[EntryLease, bool], None] | None = None,
    ) -> ManagedWorker:
        """Return the worker to run, with the options that the command overrides.

        *on_consumer*: see `Worker.on_consumer`; messages of RSMQ belong to receipts instead.
        """
        given = {} if options.concurrency is None else {"concurrency": options.concurrency}
        if self.kind == "Jobs":
            made = self.found.worker(grace_s=options.drain_s, observer=observer, **given)
        else:
            made = self.found
            made.observer, made.grace_s = observer, options.drain_s
            for name, value in given.items():
                setattr(made, name, value)
        if self.kind != "RsmqWorker":
            made.on_consumer = on_consumer
        worker: ManagedWorker = made
        return worker

    def describe(self, worker: ManagedWorker) -> TargetInfo:
        """Return what the banner shows of it."""
        jobs = () if self.jobs is None else tuple(sorted(self.jobs.definitions))
        return TargetInfo(
            source=self.source,
            kind=self.kind,
            queue=worker.name,
            redis=str(worker.endpoint),
            concurrency=worker.concurrency,
            jobs=jobs,
        )


def load_targets(names: Sequence[str], queues: Sequence[str] = ()) -> list[WorkTarget]:
    """Import what *names* say and return its targets, of *queues* alone if there are any.

    A worker that was made by `Jobs.worker` stands for its `Jobs`: it has options of its own.
    Raises `SettingsError`.
    """
    found: dict[int, WorkTarget] = {}
    for name in names:
        for target in _load(name):
            # An object that several modules import runs once.
            found.setdefault(id(target.found), target)
    made = {id(each.jobs) for each in found.values() if each.kind != "Jobs"}
    targets = [each for each in found.values() if id(each.found) not in made]
    if queues:
        _check_queues(queues, [each.queue for each in targets])
        targets = [each for each in targets if each.queue in queues]
    _check_distinct(targets)
    return targets


def _load(name: str) -> Iterator[WorkTarget]:
    module_name, colon, path = name.partition(":")
    module = import_module(module_name)
    if colon:
        yield _named(name, module, path)
        return
    targets = [
        WorkTarget(f"{module_name}:{each}", kind, value)
        for each, value in vars(module).items()
        if (kind := _kind(value))
    ]
    if not targets:
        raise SettingsError(f"{module_name} has no {KINDS} object{_found(module)}")
    yield from targets


def _named(name: str, module: ModuleType, path: str) -> WorkTarget:
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            known = [each for each in vars(module) if _kind(getattr(module, each))]
            meant = get_close_matches(part, known, n=1) or get_close_matches(part, dir(value), n=1)
            hint = f"; did you mean {f'{module.__name__}:{meant[0]}'!r}?" if meant else ""
            raise SettingsError(f"{module.__name__} has no {path!r}{hint}") from error
    if kind := _kind(value):
        return WorkTarget(name, kind, value)
    article = "an" if type(value).__name__[0] in "aeiouAEIOU" else "a"
    raise SettingsError(f"{name} is {article} {type(value).__name__}, not a {KINDS}")


def _kind(value: object) -> str:
    """Return the name of the class of a target, empty if *value* is none."""
    for kind, module in _CLASSES.items():
        known = getattr(sys.modules.get(module), kind, None)
        if isinstance(known, type) and isinstance(value, known):
            return kind
    return ""


def _found(module: ModuleType) -> str:
    """Return what of this package the module has instead, or what it has at all."""
    values = {name: each for name, each in vars(module).items() if not name.startswith("__")}
    ours = [
        f"{name} ({type(each).__name__})"
        for name, each in values.items()
        if type(each).__module__.startswith("tambomq.")
    ]
    classes = [
        name
        for name, each in values.items()
        if isinstance(each, type) and getattr(each, "__module__", "").startswith("tambomq.")
    ]
    if ours:
        return f"; it has {_listed(ours)}"
    if classes:
        return f"; it imports {_listed(classes)}, but makes none at module level"
    return f"; it has {_listed(list(values))}" if values else "; it is empty"


def _check_queues(wanted: Sequence[str], known: Sequence[str]) -> None:
    for queue in wanted:
        if queue not in known:
            meant = get_close_matches(queue, known, n=1)
            hint = f"; did you mean {meant[0]!r}?" if meant else f": there are {_listed(known)}"
            raise SettingsError(f"--queue {queue}: no target works on it{hint}")


def _check_distinct(targets: Sequence[WorkTarget]) -> None:
    """Refuse two `Jobs` of one queue: each would dead-letter the jobs of the other as unknown."""
    first: dict[str, WorkTarget] = {}
    for target in targets:
        if target.jobs is None:
            continue
        if (other := first.setdefault(target.queue, target)).jobs is not target.jobs:
            raise SettingsError(
                f"{other.source} and {target.source} are both Jobs of queue {target.queue!r}, and "
                "would dead-letter each other's jobs: put the jobs of a queue into one, or name one"
            )


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
