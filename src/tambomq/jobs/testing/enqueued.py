"""Assertions about what is in a queue: waiting, running and delayed jobs, with their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from tambomq.chasqui.bulk import scan
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member, read_entry
from tambomq.chasqui.wire.msgpack import decode_payload
from tambomq.errors import InvalidFormat, RemoteProtocolError
from tambomq.jobs.codec import to_plain
from tambomq.jobs.function import BoundJob, JobFunction
from tambomq.store.sync import Store

if TYPE_CHECKING:
    from tambomq.jobs.jobs import Jobs

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN = 20
"""Jobs that a failed assertion lists."""
_CLOSE_MS = 60_000
"""A delay may differ by so much: a test may add the job long before it asserts."""


class EnqueuedJob(msgspec.Struct, frozen=True):
    """A job that is in the queue and has not ended."""

    id: str
    name: str
    data: Any
    """Its arguments, as they are stored."""
    attempts_made: int
    created_at_ms: int
    due_at_ms: int | None = None
    """When a delayed job is due; `None` if it can run now."""


def enqueued(jobs: Jobs) -> list[EnqueuedJob]:
    """Return the jobs of a queue: those that wait or run, then the delayed ones."""
    store, keys = Store(jobs.connections.endpoint), Keys(jobs.queue_name)
    try:
        return [*_of_stream(store, keys), *_of_delayed(store, keys)]
    finally:
        store.close()


def assert_enqueued(
    job: JobFunction[..., Any] | BoundJob[..., Any], /, *args: Any, **kwargs: Any
) -> EnqueuedJob:
    """Return the first job in the queue with these arguments; raise `AssertionError` if none has.

    Arguments that are left out may have any value. With ``job.options(…)`` the job must have that
    delay, to the minute, and that id.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    function, wanted = _wanted(job, args, kwargs)
    found = enqueued(function.jobs)
    for each in found:
        if not any(_differences(each, function, wanted, job)):
            return each
    text = f"no job {_call(function.name, wanted)} in queue {function.jobs.queue_name!r}"
    raise AssertionError(text + _listing(found, function, wanted, job))


def assert_not_enqueued(
    job: JobFunction[..., Any] | BoundJob[..., Any], /, *args: Any, **kwargs: Any
) -> None:
    """Raise `AssertionError` if the queue has a job with these arguments; see `assert_enqueued`."""
    __tracebackhide__ = True  # as above
    function, wanted = _wanted(job, args, kwargs)
    found = enqueued(function.jobs)
    hits = [each for each in found if not any(_differences(each, function, wanted, job))]
    if hits:
        text = f"queue {function.jobs.queue_name!r} has {_call(function.name, wanted)}:"
        raise AssertionError("\n  ".join([text, *map(_line, hits[:_SHOWN])]))


# ── reading ──────────────────────────────────────────────────────────────────


def _of_stream(store: Store, keys: Keys) -> Iterator[EnqueuedJob]:
    low = "-"
    while page := store.run(scan.page(keys.stream, low, "+")):
        for _, fields in page:
            body, name = read_entry(fields)
            if body is not None and (job := _job(body, name, None)):
                yield job
        low = f"({page[-1][0].decode()}"


def _of_delayed(store: Store, keys: Keys) -> Iterator[EnqueuedJob]:
    seen = 0
    while (page := store.run(scan.members(keys.delayed, "-inf", "+inf", seen)))[0]:
        for member, score in zip(*page, strict=True):
            try:
                name, body = decode_member(member)
            except RemoteProtocolError:
                continue
            if job := _job(body, name, scan.moment(score)):
                yield job
        seen += len(page[0])


def _job(body: bytes, name: str, due_at_ms: int | None) -> EnqueuedJob | None:
    try:
        job = decode_envelope(body)
        data = decode_payload(job.payload)
    except RemoteProtocolError:
        # No worker could run it.
        return None
    return EnqueuedJob(job.id, name, data, job.attempt, job.created_at_ms, due_at_ms)


# ── comparing ────────────────────────────────────────────────────────────────


def _wanted(
    job: JobFunction[..., Any] | BoundJob[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[JobFunction[..., Any], dict[str, Any]]:
    function = job if isinstance(job, JobFunction) else getattr(job, "function", None)
    if not isinstance(function, JobFunction):
        raise InvalidFormat("job", job, "a function with the decorator of a Jobs")
    return function, to_plain(function.arguments.bind(args, kwargs))


def _differences(
    found: EnqueuedJob, function: JobFunction[..., Any], wanted: dict[str, Any], job: Any
) -> Iterator[str]:
    """Yield how *found* differs from what is wanted."""
    if found.name != function.name:
        yield f"name is {found.name!r}"
        return
    stored = found.data if isinstance(found.data, dict) else {}
    for name, value in wanted.items():
        # What the caller left out is not stored: its default counts.
        default = function.signature.parameters.get(name)
        has = stored.get(name, None if default is None else _plain_default(default.default))
        if has != value:
            yield f"{name} is {has!r}, not {value!r}"
    if isinstance(job, BoundJob):
        yield from _other_options(found, job.queue_options)


def _other_options(found: EnqueuedJob, options: dict[str, Any]) -> Iterator[str]:
    if (id := options.get("job_id")) is not None and found.id != id:
        yield f"job_id is {found.id!r}, not {id!r}"
    if (delay_ms := options.get("delay_ms")) is not None:
        has_ms = (found.due_at_ms or found.created_at_ms) - found.created_at_ms
        if abs(has_ms - delay_ms) > _CLOSE_MS:
            yield f"delay_s is {has_ms / 1000:g}, not {delay_ms / 1000:g}"


def _plain_default(default: Any) -> Any:
    try:
        return to_plain(default)
    except TypeError:
        return None


# ── messages ─────────────────────────────────────────────────────────────────


def _listing(
    found: list[EnqueuedJob], function: JobFunction[..., Any], wanted: dict[str, Any], job: Any
) -> str:
    if not found:
        return ", which is empty"
    # Those of the same function first: they show what is different.
    ranked = sorted(found, key=lambda each: each.name != function.name)
    lines = [f"; it has {len(found)}:"]
    for each in ranked[:_SHOWN]:
        why = "; ".join(_differences(each, function, wanted, job))
        lines.append(f"{_line(each)}  ← {why}" if each.name == function.name else _line(each))
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return "\n  ".join(lines)


def _line(job: EnqueuedJob) -> str:
    data = job.data if isinstance(job.data, dict) else {"data": job.data}
    state = "waiting" if job.due_at_ms is None else "delayed"
    return f"{state}  {_call(job.name, data)}"


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
