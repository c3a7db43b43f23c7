"""The files of a lake stand in the way."""

from __future__ import annotations

from tambomq.errors.common import TamboError


class LakeError(TamboError):
    """The files of a lake cannot be read or written; what was in it is still there."""


class LakeConflict(LakeError):
    """Another has changed the same files of a lake meanwhile; nothing was done."""
