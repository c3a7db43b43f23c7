"""Converts typed values to the plain values that are stored, and back, with checks.

msgspec converts and checks them, and pydantic its own models. Plain values are maps, lists, texts,
numbers and bytes, which other languages can read and write. Times, UUIDs, decimals and enums are
stored as text or as their value.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec import inspect as types

from tambomq.errors import InvalidFormat

_BYTES: Final = (bytes, bytearray, memoryview)
"""MessagePack has a type for bytes; without this they would be stored as Base64."""
_AT: Final = re.compile(r"(?s)(.*) - at `(.*)`")
_KEY: Final = re.compile(r"key` in `(.*)")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
"""A field, an item of a list, or a value of a map, whose key msgspec does not say."""
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_INNER: Final = re.compile(r"(?s)\x00(.*)\x00(.*)")
"""How `_decode_model` hands on a path inside a model and what is wrong there."""
_MAX_KEY: Final = 60


def to_plain(value: Any) -> Any:
    """Return *value* as it is stored; raises `TypeError` or `ValueError` if it has no such form."""
    return msgspec.to_builtins(value, builtin_types=_BYTES, enc_hook=_encode_model)


def converter(kind: Any, what: str) -> Callable[[Any], Any]:
    """Return the function that makes a *kind* of a plain value, or raises `ValidationError`.

    It also accepts instances. Raises `InvalidFormat` if *kind* is a type that cannot be stored;
    *what* names it in the message.
    """
    if kind in (Any, object):
        return _as_it_is
    hooked = False
    for each in _custom_types(kind, what):
        if not _is_model(each):
            raise InvalidFormat(what, each, "a type that msgspec or pydantic can convert")
        hooked = True
    convert = msgspec.convert
    if hooked:
        return lambda value: convert(value, kind, dec_hook=_decode_model)
    return lambda value: convert(value, kind)


def is_shallow(kind: Any) -> bool:
    """Whether an instance of *kind* is checked completely by looking at it.

    Instances of classes with fields are not: Python does not check what is assigned to them.
    """
    with_fields = (
        types.StructType,
        types.DataclassType,
        types.NamedTupleType,
        types.TypedDictType,
        types.CustomType,
    )
    return not any(isinstance(each, with_fields) for each in _walk(types.type_info(kind)))


def explain(error: msgspec.ValidationError, data: Any, convert: Callable[[Any], Any]) -> str:
    """Return path and reason of *error*: ``$.to: expected str, got int``.

    *convert* has raised it for *data*.
    """
    text, path = str(error), "$"
    if found := _AT.fullmatch(text):
        text, path = found.groups()
        path = _with_keys(path, str(error), data, convert)
    if found := _KEY.fullmatch(path):
        path = f"{found[1]}: a key"
    if found := _INNER.fullmatch(text):
        return f"{path}{found[1]}: {found[2]}"
    if found := _MISSING.fullmatch(text):
        return f"{path}.{found[1]}: missing"
    if found := _UNKNOWN.fullmatch(text):
        return f"{path}.{found[1]}: unknown"
    text = text.replace("`", "")
    return f"{path}: {text[:1].lower()}{text[1:]}"


def within(name: str, error: msgspec.ValidationError) -> msgspec.ValidationError:
    """Return *error*, raised for the value of field *name*, as an error of the whole object."""
    text, path = str(error), "$"
    if found := _AT.fullmatch(text):
        text, path = found.groups()
    return msgspec.ValidationError(f"{text} - at `{path.replace('$', f'$.{name}', 1)}`")


def _with_keys(path: str, text: str, data: Any, convert: Callable[[Any], Any]) -> str:
    """Return *path* with the keys of maps, for which msgspec writes ``[...]``."""
    steps: list[Any] = []
    shown = path[: path.find("$") + 1]
    for step in _STEP.finditer(path):
        name, index = step.groups()
        if name is None and index is None:
            if (key := _first_misfit(steps, text, data, convert)) is None:
                return path
            steps.append(key)
            shown += f"[{key!r}]" if len(repr(key)) <= _MAX_KEY else f"[{repr(key)[:_MAX_KEY]}…]"
        else:
            steps.append(name if index is None else int(index))
            shown += step[0]
    return shown


def _first_misfit(steps: list[Any], text: str, data: Any, convert: Callable[[Any], Any]) -> Any:
    """Return the first key of the map at *steps* of *data* for which *convert* raises *text*."""
    found = data
    for step in steps:
        if not isinstance(found, list if isinstance(step, int) else dict):
            return None
        found = found[step]
    if not isinstance(found, dict):
        return None
    items = list(found.items())

    def misfits(count: int) -> bool:
        try:
            convert(_replaced(data, steps, dict(items[:count])))
        except msgspec.ValidationError as error:
            return str(error) == text
        return False

    # Values are checked in order, so the first invalid one is the last of the shortest invalid
    # prefix. Found by binary search, since a stranger may have sent many.
    count = bisect_left(range(len(items) + 1), x=True, key=misfits)
    return items[count - 1][0] if 0 < count <= len(items) else None


def _replaced(data: Any, steps: list[Any], value: Any) -> Any:
    """Return a copy of *data* with *value* at *steps*."""
    if not steps:
        return value
    copied = data.copy()
    copied[steps[0]] = _replaced(data[steps[0]], steps[1:], value)
    return copied


def _as_it_is(value: Any) -> Any:
    return value


def _custom_types(kind: Any, what: str) -> Iterator[Any]:
    """Yield the types within *kind* that msgspec does not know."""
    try:
        # Refuses, for instance, unions that no reader could tell apart.
        msgspec.msgpack.Decoder(kind)
        described = types.type_info(kind)
    except (TypeError, NameError, RecursionError) as error:
        raise InvalidFormat(what, kind, str(error)) from error
    for each in _walk(described):
        if isinstance(each, types.CustomType):
            yield each.cls


def _walk(described: types.Type) -> Iterator[types.Type]:
    """Yield *described* and every type within it, each class once."""
    seen: set[int] = set()
    left: list[Any] = [described]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, types.Type):
            yield each
        if isinstance(each, msgspec.Struct):
            left += (getattr(each, name) for name in each.__struct_fields__)
        elif isinstance(each, tuple):
            left += each


# ── pydantic ─────────────────────────────────────────────────────────────────


def _is_model(kind: Any) -> bool:
    # Without an import: whoever has made a model has imported pydantic.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def _encode_model(value: Any) -> Any:
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _decode_model(kind: Any, value: Any) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ValueError(_first_fault(error)) from None


def _first_fault(error: Any) -> str:
    """Return what pydantic found first, for `explain`."""
    first = error.errors(include_url=False)[0]
    path = "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
    return f"\0{path}\0{first['msg'][:1].lower()}{first['msg'][1:]}"
