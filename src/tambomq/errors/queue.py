"""A queue cannot do what was asked; each error names the queue."""

from __future__ import annotations

from tambomq.errors.common import TamboError


class QueueError(TamboError):
    """A queue cannot do what was asked."""

    def __init__(self, queue: str, message: str) -> None:
        super().__init__(message)
        self.queue = queue


class QueueNotFound(QueueError):
    """No queue has this name."""

    code = "queueNotFound"

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} does not exist")


class QueueExists(QueueError):
    """A queue already has this name."""

    code = "queueExists"

    def __init__(self, queue: str) -> None:
        super().__init__(queue, f"queue {queue!r} already exists")


class MessageTooLong(QueueError):
    """A body has more bytes than the queue takes."""

    code = "messageTooLong"

    def __init__(self, queue: str, size: int, maxsize: int) -> None:
        super().__init__(
            queue, f"a message of {size} bytes exceeds the {maxsize} that queue {queue!r} takes"
        )
        self.size, self.maxsize = size, maxsize


class QueueCorrupt(QueueError):
    """What is stored under the queue's keys is not a queue of this protocol."""

    def __init__(self, queue: str, detail: str) -> None:
        super().__init__(queue, f"queue {queue!r} is damaged: {detail}")
        self.detail = detail


class BatchIncomplete(QueueError):
    """Part of a batch failed; *ids* has a message's id in its place, or `None` if it failed."""

    def __init__(self, queue: str, ids: list[str | None]) -> None:
        done = len(ids) - ids.count(None)
        super().__init__(queue, f"{done} of {len(ids)} messages reached queue {queue!r}")
        self.ids = ids


class QueueFull(QueueError):
    """A queue holds as many jobs as it may; nothing was added."""

    def __init__(self, queue: str, cap: int) -> None:
        super().__init__(
            queue,
            f"queue {queue!r} holds {cap} jobs and takes no more: let workers catch up, "
            'raise max_stream_len, or lose the oldest with overflow="trim"',
        )
        self.cap = cap


class JournalFull(QueueError):
    """A queue's journal holds as much unread as it may; nothing was stored."""

    def __init__(self, queue: str, max_entries: int, max_bytes: int) -> None:
        told = f"the journal of queue {queue!r} is full: {max_entries} entries or {max_bytes} bytes"
        super().__init__(queue, f"{told}; let its readers commit, or raise its bounds")
        self.max_entries, self.max_bytes = max_entries, max_bytes


class LimitReached(QueueError):
    """A consumer, a key or a connection has as many peers or keys as it may; nothing was added."""

    def __init__(self, whose: str, most: int, what: str) -> None:
        super().__init__(whose, f"{whose} has {most} {what}, and may have no more")
        self.most, self.what = most, what


class QueueBusy(QueueError):
    """Jobs are running that the operation would take away."""

    def __init__(self, queue: str, active: int) -> None:
        super().__init__(
            queue,
            f"{active} jobs of queue {queue!r} are in workers' hands: stop them, or use force",
        )
        self.active = active


class JobBusy(QueueError):
    """A worker has the job that was to be removed; nothing was done."""

    def __init__(self, queue: str, id: str, worker: str) -> None:
        super().__init__(
            queue,
            f"job {id!r} of queue {queue!r} is in the hands of worker {worker!r}: "
            "it can be removed when it has ended",
        )
        self.id, self.worker = id, worker


class ForeignLeader(QueueError):
    """Another engine leads a queue and could not read what was to be stored; nothing was."""

    def __init__(self, queue: str, holder: str) -> None:
        super().__init__(
            queue,
            f"queue {queue!r} is led by {holder!r}, another engine, which cannot read a delayed "
            'job in the page dialect: use dialect="engine"',
        )
        self.holder = holder


class JobFailed(QueueError):
    """A job whose result was awaited is dead.

    *error_type*, *detail* and *traceback* tell what its handler raised; empty where nobody said.
    """

    def __init__(
        self,
        queue: str,
        id: str,
        reason: str,
        *,
        error_type: str = "",
        detail: str = "",
        traceback: str = "",
    ) -> None:
        told = ": ".join(filter(None, (reason, error_type, detail)))
        super().__init__(queue, f"job {id!r} of queue {queue!r} is dead: {told}")
        self.id, self.reason = id, reason
        self.error_type, self.detail, self.traceback = error_type, detail, traceback
        if traceback:
            self.add_note(f"In its worker:\n{traceback}")


class HandlersStuck(QueueError):
    """All threads of a worker run handlers that have timed out, so it can do nothing more.

    *threads* has the message id for the name of each thread.
    """

    def __init__(self, queue: str, threads: dict[str, str]) -> None:
        shown = ", ".join(f"{id} in {thread}" for thread, id in sorted(threads.items()))
        super().__init__(
            queue,
            f"all {len(threads)} threads of the worker on queue {queue!r} run handlers that have "
            f"timed out and do not end ({shown}): restart the process, and give blocking "
            "calls in the handler timeouts of their own",
        )
        self.threads = threads
