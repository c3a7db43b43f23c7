"""Errors as JSON: a sentence that says what is wrong and what to do, a status, and a kind."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tambomq.errors import (
    AccessDenied,
    ActionRefused,
    LocalProtocolError,
    MessageNotFound,
    NotAuthenticated,
    QueueError,
    QueueNotFound,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    TamboError,
)
from tambomq.log import mask_url

_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
# The first that fits counts.
_STATUSES: Final[tuple[tuple[type[TamboError], int], ...]] = (
    (NotAuthenticated, 401),
    (AccessDenied, 403),
    (QueueNotFound, 404),
    (MessageNotFound, 404),
    (LocalProtocolError, 400),
    (ActionRefused, 409),
    (QueueError, 409),
    (StoreError, 503),
)


class ProblemDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An error, as its JSON has it."""

    title: str
    status: int
    kind: str


class Problem(Exception):
    """A request that is answered with an error. *retry_after_s* is sent if it is known."""

    def __init__(
        self, status: int, kind: str, title: str, *, retry_after_s: float | None = None
    ) -> None:
        super().__init__(title)
        self.status, self.kind, self.title = status, kind, title
        self.retry_after_s = retry_after_s

    @property
    def detail(self) -> ProblemDetail:
        """What the caller is shown."""
        # A lone surrogate, in a name out of Redis, cannot be written as JSON.
        title = self.title.encode("utf-8", "backslashreplace").decode()
        return ProblemDetail(title=mask_url(title), status=self.status, kind=self.kind)


def problem_of(error: TamboError) -> Problem:
    """Return the answer for *error*, which an operation has raised."""
    status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
    return Problem(status, _CAPITAL.sub("_", type(error).__name__).lower(), _sentence(error))


def _sentence(error: TamboError) -> str:
    text = str(error)
    if isinstance(error, StoreUnavailable) and not isinstance(error, StoreReadOnly):
        return f"Redis does not answer: {text}. The console tries again by itself."
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
