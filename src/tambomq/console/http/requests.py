"""The parameters, bodies and replies of the API that are not in a `model`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from tambomq.console.actions.model import AuditEntry, Operation
from tambomq.console.http.login.access import Role
from tambomq.console.messages.model import MessageState
from tambomq.console.model import PROTOCOLS, LeaderRow, ScheduleRow, WorkerRow

Encoding = Literal["text", "json", "base64", "msgpack"]
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
PerSecond = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]
Delay = Annotated[float, msgspec.Meta(ge=0, le=30 * 24 * 3600)]
Text = Annotated[str, msgspec.Meta(max_length=1000)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
QueueName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=2000,
        # Only described: `QueueRef.parse` has the better sentence.
        extra_json_schema={"pattern": f"^({'|'.join(PROTOCOLS)}):.+"},
        description="The protocol and the name of a queue, as commands take it: chasqui:payments.",
    ),
]


class _Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters or a body; what it does not know is an error."""


class NoParameters(_Request, frozen=True):
    """No parameters."""


class NoBody(_Request, frozen=True):
    """No body, or an empty object."""


class QueueQuery(_Request, frozen=True):
    """A queue."""

    queue: QueueName


class MessagesQuery(QueueQuery, frozen=True):
    """Some messages of a queue."""

    state: MessageState = "visible"
    cursor: Text | None = None
    limit: Limit = 50
    find: Text = ""
    name: Text = ""


class MessageQuery(QueueQuery, frozen=True):
    """A message."""

    id: Id


class WorkersQuery(_Request, frozen=True):
    """The workers of one queue, or of all."""

    queue: QueueName | None = None


class ScheduleQuery(QueueQuery, frozen=True):
    """A recurring job."""

    key: Id


class FindQuery(_Request, frozen=True):
    """Part of the name of a queue, or the id of a message."""

    text: Id


class AuditQuery(_Request, frozen=True):
    """How many entries."""

    limit: Limit = 100


class LettersSummaryQuery(_Request, frozen=True):
    """Which dead letters to count."""

    queue: QueueName | None = None
    since_ms: Annotated[int, msgspec.Meta(ge=0, le=1 << 53)] | None = None
    find: Text = ""


class LettersQuery(_Request, frozen=True):
    """Which dead letters to list."""

    queue: QueueName | None = None
    groups: list[Text] = []
    reasons: list[Text] = []
    find: Text = ""
    cursor: Text | None = None
    limit: Limit = 50


class IdPath(_Request, frozen=True):
    """The id of a selection or an operation, in the path."""

    id: Id


class QueueAction(_Request, frozen=True):
    """Whether to count only, and how many messages are expected."""

    dry_run: bool = False
    expected: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """If the action concerns another number of messages by now, it is refused."""


class _WithBody(_Request, frozen=True):
    body: str
    encoding: Encoding = "text"


class SendRequest(_WithBody, frozen=True):
    """A message to send."""

    name: Text = ""
    delay_s: Delay | None = None
    job_id: Id | None = None
    attempts: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None


class CancelRequest(_Request, frozen=True):
    """Why a job is cancelled."""

    reason: Text = ""


class EditRequest(_WithBody, frozen=True):
    """Another body."""


class ReplayRequest(_Request, frozen=True):
    """How fast to replay, and how many to send ahead: unless all of these are done, it stops."""

    per_s: PerSecond | None = None
    ahead: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0


class DiscardRequest(_Request, frozen=True):
    """The number of letters to delete, as a person has typed it."""

    typed_count: Annotated[int, msgspec.Meta(ge=0)]


class LoginRequest(_Request, frozen=True):
    """A token."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The caller, and what it may do."""

    user: str
    role: Role | None
    """`None`: it has to log in."""
    csrf: str
    """Send it as ``X-Tambo-CSRF`` with each POST."""
    read_only: bool
    needs_login: bool
    """Nothing but this is answered before a log-in."""
    can_log_out: bool = False
    version: str = ""


class WorkerList(msgspec.Struct, frozen=True, kw_only=True):
    """Workers, peers and connections, and the leaders of ChasquiMQ queues."""

    workers: list[WorkerRow]
    leaders: list[LeaderRow]


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """Recurring jobs."""

    schedules: list[ScheduleRow]


class AuditList(msgspec.Struct, frozen=True, kw_only=True):
    """What was done and what was refused, newest first."""

    entries: list[AuditEntry]


class OperationList(msgspec.Struct, frozen=True, kw_only=True):
    """The latest operations."""

    operations: list[Operation]


class FoundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message whose id was searched for."""

    queue: str
    id: str
    state: MessageState


class FindResult(msgspec.Struct, frozen=True, kw_only=True):
    """Queues by name, and messages by id."""

    queues: list[str]
    messages: list[FoundMessage]
    cut_off: bool = False
    """There are more queues with such a name, or more to search for the id."""
