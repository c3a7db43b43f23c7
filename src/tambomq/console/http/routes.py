"""The table of the API's routes. The application and the OpenAPI description are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from tambomq.console.actions.model import (
    ActionResult,
    DeadLetterSummary,
    LetterSelection,
    LetterSelector,
    Operation,
)
from tambomq.console.http import handlers
from tambomq.console.http import requests as types
from tambomq.console.http.login.access import Role
from tambomq.console.http.parts import ConsoleParts
from tambomq.console.http.requests import NoBody, NoParameters
from tambomq.console.messages.model import Body, MessageDetail, MessagePage
from tambomq.console.model import Overview, PipelineStatus, QueueDetail

Q = TypeVar("Q")
B = TypeVar("B")
R = TypeVar("R")

PREFIX: Final = "/api/v1"


@dataclass(frozen=True, slots=True)
class ApiRoute(Generic[Q, B, R]):
    """A method and a path below `PREFIX`: what it needs, takes and returns."""

    method: Literal["GET", "POST"]
    path: str
    role: Role
    handle: Callable[[ConsoleParts, Q, B], Awaitable[R]]
    query: type[Q]
    """Parameters of the query, and of the path where it names them in braces."""
    body: type[B]
    reply: type[R]
    verb: str = ""
    """The action's name in the audit log; empty if it changes nothing."""

    @property
    def about(self) -> str:
        """What it does, in a sentence."""
        return (self.handle.__doc__ or "").partition("\n")[0]

    @property
    def id(self) -> str:
        """Its name in the description."""
        return self.handle.__name__


def _get(
    path: str,
    handle: Callable[[ConsoleParts, Q, NoBody], Awaitable[R]],
    query: type[Q],
    reply: type[R],
) -> ApiRoute[Q, NoBody, R]:
    return ApiRoute("GET", path, "viewer", handle, query, NoBody, reply)


def _act(
    path: str,
    handle: Callable[[ConsoleParts, Q, B], Awaitable[R]],
    query: type[Q],
    body: type[B],
    reply: type[R],
    verb: str,
) -> ApiRoute[Q, B, R]:
    return ApiRoute("POST", path, "operator", handle, query, body, reply, verb)


_SELECTION: Final = "/dead-letters/selections/{id}"
_READS: Final[tuple[ApiRoute[Any, Any, Any], ...]] = (
    _get("/overview", handlers.overview, NoParameters, Overview),
    _get("/queue", handlers.queue, types.QueueQuery, QueueDetail),
    _get("/messages", handlers.messages, types.MessagesQuery, MessagePage),
    _get("/message", handlers.message, types.MessageQuery, MessageDetail),
    _get("/workers", handlers.workers, types.WorkersQuery, types.WorkerList),
    _get("/schedules", handlers.schedules, NoParameters, types.ScheduleList),
    _get("/pipeline", handlers.pipeline, NoParameters, PipelineStatus),
    _get("/audit", handlers.audit, types.AuditQuery, types.AuditList),
    _get("/find", handlers.find, types.FindQuery, types.FindResult),
    _get("/operations", handlers.operations, NoParameters, types.OperationList),
    _get("/dead-letters", handlers.dead_letters, types.LettersSummaryQuery, DeadLetterSummary),
    _get("/dead-letters/letters", handlers.letters, types.LettersQuery, MessagePage),
)
_QUEUE_ACTION: Final = (types.QueueQuery, types.QueueAction, ActionResult)
_QUEUES: Final[tuple[ApiRoute[Any, Any, Any], ...]] = (
    _act("/queue/pause", handlers.pause, *_QUEUE_ACTION, "pause"),
    _act("/queue/resume", handlers.resume, *_QUEUE_ACTION, "resume"),
    _act("/queue/purge", handlers.purge, *_QUEUE_ACTION, "purge"),
    _act("/queue/drain", handlers.drain, *_QUEUE_ACTION, "drain"),
)
_MESSAGE, _SCHEDULE = types.MessageQuery, (types.ScheduleQuery, NoBody, ActionResult)
_MESSAGES: Final[tuple[ApiRoute[Any, Any, Any], ...]] = (
    _act(
        "/messages/send", handlers.send, types.QueueQuery, types.SendRequest, ActionResult, "send"
    ),
    _act("/message/run-now", handlers.run_now, _MESSAGE, NoBody, ActionResult, "run now"),
    _act("/message/cancel", handlers.cancel, _MESSAGE, types.CancelRequest, ActionResult, "cancel"),
    _act("/message/delete", handlers.delete, _MESSAGE, NoBody, ActionResult, "delete"),
    _act("/message/edit", handlers.edit, _MESSAGE, types.EditRequest, ActionResult, "edit"),
    _act("/schedules/run-now", handlers.run_schedule, *_SCHEDULE, "run schedule"),
    _act("/schedules/skip", handlers.skip_schedule, *_SCHEDULE, "skip schedule"),
)
_ID: Final = types.IdPath
_LETTERS: Final[tuple[ApiRoute[Any, Any, Any], ...]] = (
    # Selecting changes nothing, but it costs more than a viewer may spend.
    _act(
        "/dead-letters/selections",
        handlers.select,
        NoParameters,
        LetterSelector,
        LetterSelection,
        "",
    ),
    _act(f"{_SELECTION}/replay", handlers.replay, _ID, types.ReplayRequest, Operation, "replay"),
    # Only who may select has a selection.
    ApiRoute("GET", f"{_SELECTION}/body", "operator", handlers.selected_body, _ID, NoBody, Body),
    _act(
        f"{_SELECTION}/edit",
        handlers.edit_and_replay,
        _ID,
        types.EditRequest,
        ActionResult,
        "edit and replay",
    ),
    _act(
        f"{_SELECTION}/delete",
        handlers.discard,
        _ID,
        types.DiscardRequest,
        Operation,
        "delete letters",
    ),
    _act("/operations/{id}/undo", handlers.undo, _ID, NoBody, Operation, "undo"),
    _act("/operations/{id}/stop", handlers.stop, _ID, NoBody, Operation, "stop"),
)

ROUTES: Final = (*_READS, *_QUEUES, *_MESSAGES, *_LETTERS)
"""All routes that read or change something in Redis."""

LIVE, SESSION, LOGIN, LOGOUT = "/live", "/session", "/login", "/logout"
OPENAPI: Final = "/openapi.json"

OWN_ROUTES: Final[Mapping[str, Literal["GET", "POST"]]] = {
    LIVE: "GET",
    SESSION: "GET",
    LOGIN: "POST",
    LOGOUT: "POST",
    OPENAPI: "GET",
}
"""Routes of the console itself, with their methods."""
