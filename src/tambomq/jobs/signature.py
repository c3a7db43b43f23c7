"""The signature of a job's function: which parameters are stored, and which are injected."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from tambomq.errors import InvalidArguments, InvalidFormat, UnrecoverableError
from tambomq.jobs.codec import converter, explain, is_shallow, to_plain, within

_IMMUTABLE: Final = (str, int, float, bool, bytes, type(None))
_NOT_STORABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class _Injected:
    """The type of `INJECTED`."""

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Any = _Injected()
"""The default of a parameter that the worker fills in by its type."""


def check_signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of *function*.

    Raises `InvalidFormat` if it has ``*args``, is a method, or yields: nobody would run it to its
    end.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidFormat("job", name, "a function that returns, not one that yields")
    signature = inspect.signature(function)
    if _is_method(function, signature):
        raise InvalidFormat("job", name, "a function outside of classes: a worker has no object")
    for each in signature.parameters.values():
        if each.kind is Parameter.VAR_POSITIONAL:
            rule = f"stored arguments have names: replace *{each.name} by a list"
            raise InvalidFormat("job", name, rule)
    return signature


def _is_method(function: Callable[..., Any], signature: inspect.Signature) -> bool:
    *_, parent, _ = ("<locals>", *function.__qualname__.split("."))
    return parent != "<locals>" and next(iter(signature.parameters), "") in ("self", "cls")


def hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of *function*; raise `InvalidFormat` for a name that is not found."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        rule = f"{error}, in an annotation; it must be defined at the top of the module"
        raise InvalidFormat("job", name, rule) from error


class Arguments:
    """The stored arguments of one job: checked when it is added and before it runs.

    *injected* are the parameters that are not stored.
    """

    def __init__(
        self,
        job: str,
        signature: inspect.Signature,
        hints: Mapping[str, Any],
        injected: Mapping[str, Any],
    ) -> None:
        """Raise `InvalidFormat` for a type that cannot be stored."""
        self._job = job
        self._rest: Callable[[Any], Any] | None = None
        stored = [each for each in signature.parameters.values() if each.name not in injected]
        for each in stored:
            if each.kind is Parameter.VAR_KEYWORD:
                kind = hints.get(each.name, Any)
                self._rest = converter(kind, f"job {job!r}: parameter {each.name}")
        stored = [each for each in stored if each.kind is not Parameter.VAR_KEYWORD]
        self._names = frozenset(each.name for each in stored)
        self._by_position = tuple(each.name for each in stored if each.kind in _POSITIONAL)
        self._positional_only = tuple(
            each.name for each in signature.parameters.values() if each.kind is each.POSITIONAL_ONLY
        )
        self.required = tuple(each.name for each in stored if each.default is Parameter.empty)
        """The stored parameters without a default."""
        struct = self._struct(stored, hints)
        self._convert = converter(struct, f"job {job!r}")
        self._shallow = is_shallow_struct(struct) and self._rest is None

    def _struct(self, stored: list[Parameter], hints: Mapping[str, Any]) -> type[msgspec.Struct]:
        fields: list[Any] = []
        for each in stored:
            kind = hints.get(each.name, Any)
            # Named in the error, which the struct as a whole would not do.
            converter(kind, f"job {self._job!r}: parameter {each.name}")
            # msgspec knows `object` by another name.
            kind = Any if kind is object else kind
            fields.append((each.name, kind, _default(each.default)))
        made: type[msgspec.Struct] = msgspec.defstruct(
            self._job.title(), fields, forbid_unknown_fields=True, kw_only=True
        )
        return made

    # ── when a job is added ──────────────────────────────────────────────────

    def payload(self, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call as they are stored; raise `InvalidArguments`."""
        if args:
            given = self.bind(args, given)
        checked = given
        try:
            self._decoded(given)
            plain: dict[str, Any] = to_plain(given)
            if not self._shallow:
                checked = plain
                self._decoded(plain)
        except msgspec.ValidationError as error:
            fault = explain(error, checked, self._decoded)
            raise InvalidArguments(self._job, fault) from None
        except _NOT_STORABLE as error:
            raise InvalidArguments(self._job, _unstorable(given, error)) from error
        return plain

    def bind(self, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name; raise `InvalidArguments` if there are too many."""
        if len(args) > len(self._by_position):
            takes = f"takes {len(self._by_position)} by position, got {len(args)}"
            raise InvalidArguments(self._job, takes)
        bound = dict(zip(self._by_position, args, strict=False))
        if twice := bound.keys() & given.keys():
            raise InvalidArguments(self._job, f"$.{min(twice)}: given twice")
        return bound | given

    # ── before it runs ───────────────────────────────────────────────────────

    def arguments(self, data: Any) -> dict[str, Any]:
        """Return stored *data* as arguments by name; raise `UnrecoverableError`."""
        try:
            # Without a further call: this is on the way of every job.
            return asdict(self._convert(data)) if self._rest is None else self._decoded(data)
        except msgspec.ValidationError as error:
            if data is None and not self.required:
                # Other producers may leave out what has no arguments.
                return self._decoded({})
            fault = explain(error, data, self._decoded)
            detail = f"the payload does not fit job {self._job!r}: {fault}"
            raise UnrecoverableError(detail) from None

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Call *function* with *arguments*, some of which may be positional only."""
        if not self._positional_only:
            return function(**arguments)
        first = [arguments.pop(name) for name in self._positional_only]
        return function(*first, **arguments)

    def _decoded(self, data: Any) -> dict[str, Any]:
        if self._rest is None or type(data) is not dict:
            return asdict(self._convert(data))
        known = {name: value for name, value in data.items() if name in self._names}
        decoded: dict[str, Any] = asdict(self._convert(known))
        for name, value in data.items():
            if type(name) is not str:
                raise msgspec.ValidationError("Expected `str` - at `key` in `$`")
            if name not in self._names:
                decoded[name] = self._of_rest(name, value, self._rest)
        return decoded

    def _of_rest(self, name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
        try:
            return convert(value)
        except msgspec.ValidationError as error:
            raise within(name, error) from None

    @property
    def is_plain_call(self) -> bool:
        """Whether all arguments can be given by name."""
        return not self._positional_only


def _unstorable(given: Mapping[str, Any], error: Exception) -> str:
    """Return which argument of *given* cannot be stored, and why."""
    for name, value in given.items():
        try:
            to_plain(value)
        except _NOT_STORABLE as found:
            return f"$.{name}: {found}"
    return str(error)


def is_shallow_struct(struct: type[msgspec.Struct]) -> bool:
    """Whether every field of *struct* is checked completely by looking at it."""
    return all(is_shallow(each.type) for each in msgspec.structs.fields(struct))


def _default(default: Any) -> Any:
    if default is Parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(default, _IMMUTABLE):
        return default
    # The same object at each call, as Python has it.
    return msgspec.field(default_factory=lambda: default)
