"""Forms: the JSON encoding of a value, declared once as a msgspec struct; bytes ↔ form ↔ value of the model.

    bytes ── msgspec, `Notation.read` ──▶ form ── `Form.value` ──▶ value        structure first, then the checks of the model
    bytes ◀─ msgspec ────────────────── members ◀─ `Form.write` ── value        members with their default value are left out

A form has the fields of its model class, with these types: msgspec's own (`str`, `bool`, `float`, `Whole`), another form, a
union of forms, tuples and dicts of these, and notations: values of one type that are encoded as another type in JSON.

Invariants:
- decoding is strict: unknown, missing and null members, other types and other spellings are refused;
- the only exception is `Malformed`; for faults of structure, its detail begins with the path to the member;
- every text carries the version of its form (`v`) as its first member; without one it is version 1, and a newer one is refused as
  VERSION_UNKNOWN, whatever other faults it has.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from milepost.model.reasons import Malformed, Reason

VERSION: Final = 1
"""The version of the JSON forms and of the records made of them."""

INTEGER_MAX: Final = 2**53 - 1
"""Largest integer that every JSON parser reads exactly; larger ones are written as text."""

Whole = Annotated[int, msgspec.Meta(ge=-INTEGER_MAX, le=INTEGER_MAX)]

NAME_CHARACTERS_MAX: Final = 64
"""Maximum characters of a member's name in a refusal's detail."""

_VERSION_MEMBER: Final = b'{"v":%d,' % VERSION

Value = TypeVar("Value")
Structure = TypeVar("Structure", bound=msgspec.Struct)


def absent(value: object) -> Any:  # the default of a field of any type
    """Declare the model's value for an absent member."""
    return msgspec.field(default=value)


class _NotationType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        """Make msgspec accept any result of `read` as an instance."""
        return True


class Notation(metaclass=_NotationType):
    """A type of field whose JSON differs from its value."""

    @staticmethod
    def read(value: Any, /) -> Any:
        """Return the value of its JSON encoding; raises ValueError (`Malformed`)."""
        raise NotImplementedError

    @staticmethod
    def write(value: Any, /) -> Any:
        """Return the JSON encoding, which decodes to the same value; by default that of msgspec (bytes in base64)."""
        return value


class Versioned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A struct that is a whole text but not the form of a value; `encode_members` writes its version."""

    v: Literal[1] = 1


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON object of a value of the model; fields have the names of the model's fields, JSON members may have others."""

    MODEL: ClassVar[Callable[..., Any]]
    """The class of the value, or a function that constructs it from the fields."""
    PATHS: ClassVar[Mapping[str, str]] = {}
    """Attribute paths of fields in the value, where they differ from the field's name."""

    @classmethod
    def write(cls, value: Any) -> Any:
        """Return the members of a value's form as a dict, or as a list for array-like forms, for msgspec to encode."""
        return _compiled(cls)(value)

    def value(self) -> Any:
        """Return the value; raises `Malformed` if the model does not accept it."""
        held = {name: getattr(self, name) for name in self.__struct_fields__ if name != "v"}
        for name in _nested(type(self)):
            held[name] = _value(held[name])
        return type(self).MODEL(**held)


class Standalone(Form, frozen=True, kw_only=True, tag_field="type"):
    """A form that may be a whole text, identified by its `type`, which is optional where another form contains it."""

    v: Literal[1] = 1


class Decoder(Generic[Structure]):
    """Decoder of JSON texts that have the structure of one of some structs."""

    def __init__(self, name: str, *structs: type[Structure], bytes_max: int) -> None:
        """Create a decoder; *name* is the root of paths in errors, unless the tag of one of several structs is known."""
        self._name = name
        self._structs = structs
        self._by_tag = {str(one.__struct_config__.tag): one for one in structs}
        self._bytes_max = bytes_max
        self._type = Union[structs]  # noqa: UP007
        self._decoder: msgspec.json.Decoder[Structure] = msgspec.json.Decoder(self._type, dec_hook=_read)

    def decode(self, data: bytes | str) -> Structure:
        """Return the struct of a JSON text; raises only `Malformed`."""
        check_size(data, self._bytes_max)
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
            raise self._fault(fault, decode_any(data)) from None

    def convert(self, members: object) -> Structure:
        """Return the struct of an already parsed object; raises only `Malformed`."""
        try:
            found: Structure = msgspec.convert(members, self._type, dec_hook=_read)
        except msgspec.ValidationError as fault:
            raise self._fault(fault, members) from None
        return found

    def _fault(self, fault: Exception, members: object) -> Malformed:
        struct = self._structs[0] if len(self._structs) == 1 else None
        if isinstance(members, dict):
            version = members.get("v", VERSION)
            if isinstance(version, int) and version != VERSION:
                return Malformed(Reason.VERSION_UNKNOWN, f"v is {version}, and only version {VERSION} is known")
            struct = struct or self._by_tag.get(str(members.get("type")))
        return _translated(fault, self._name, struct, self._by_tag)


class Codec(Generic[Value]):
    """Encoder and decoder of values that have one of some forms."""

    def __init__(self, name: str, *forms: type[Form], bytes_max: int) -> None:
        self.forms: Final = Decoder[Form](name, *forms, bytes_max=bytes_max)
        self._by_model = {form.MODEL: form for form in forms}
        self._bytes_max = bytes_max

    def encode(self, value: Value) -> bytes:
        """Return the JSON text of a value; raises `Malformed` if JSON cannot represent it."""
        data = encode_members(self._by_model[type(value)].write(value))
        check_size(data, self._bytes_max)
        return data

    def decode(self, data: bytes) -> Value:
        """Return the value of a JSON text; raises only `Malformed`."""
        value: Value = self.forms.decode(data).value()
        return value


def encode_members(members: dict[str, object] | msgspec.Struct) -> bytes:
    """Return the JSON text of a non-empty object, version first; raises `Malformed` if JSON cannot represent it."""
    return _VERSION_MEMBER + encode_any(members)[1:]


def encode_any(value: object) -> bytes:
    """Return the JSON text of plain values and structs; raises `Malformed` if JSON cannot represent them."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"JSON cannot represent it: {fault.reason}") from None


def decode_any(data: bytes | str) -> object:
    """Return the plain values of any JSON text; raises only `Malformed`."""
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError as fault:
        raise Malformed(Reason.FIELD_RANGE, str(fault)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        position = _BYTE.search(str(fault))
        raise Malformed(Reason.MALFORMED, f"invalid JSON: {fault}", at=int(position[1]) if position else None) from None


def check_size(data: bytes | str, bytes_max: int) -> None:
    """Raise `Malformed` if a text is too long; called before parsing."""
    if len(data) > bytes_max:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{len(data)} bytes of JSON, {bytes_max} are allowed")


def located(fault: Malformed, where: str) -> Malformed:
    """Return the error with the name of the faulty member before its detail."""
    joint = "" if not fault.detail else " " if fault.detail.startswith(("is ", "has ")) else ": "
    return Malformed(fault.reason, f"{where}{joint}{fault.detail}", at=fault.at)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a "did you mean" hint for an unknown name; empty if no known one is similar."""
    near = get_close_matches(name[:NAME_CHARACTERS_MAX], list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def member_names(struct: type[msgspec.Struct]) -> set[str]:
    """Return the names of all members that a struct may have in JSON."""
    tag = struct.__struct_config__.tag_field
    return {*struct.__struct_encode_fields__, *([] if tag is None else [tag])}


_ENCODER: Final = msgspec.json.Encoder()
_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)$")


def _read(notation: type[Notation], value: object) -> object:
    return notation.read(value)


# Forms ↔ values.


@cache
def _compiled(form: type[Form]) -> Callable[[Any], Any]:
    """Return the function that writes the members, generated as dataclasses generate constructors, which halves the time."""
    config = form.__struct_config__
    known: dict[str, Any] = {}
    rows, lines = [], [f"found = { ({config.tag_field: config.tag} if config.tag_field else {})!r}"]
    for at, field in enumerate(one for one in msgspec.structs.fields(form) if one.name != "v"):
        known[f"default_{at}"], write = _default(field), _writer(field.type)
        known[f"write_{at}"] = write
        held, call = f"value.{form.PATHS.get(field.name, field.name)}", "{}" if write is None else f"write_{at}({{}})"
        rows.append(call.format(held))
        if known[f"default_{at}"] is msgspec.NODEFAULT:
            lines.append(f"found[{field.encode_name!r}] = {call.format(held)}")
        else:
            lines.append(f"if (held := {held}) is not default_{at} and held != default_{at}:")
            lines.append(f"    found[{field.encode_name!r}] = {call.format('held')}")
    body = [f"return [{', '.join(rows)}]"] if config.array_like else [*lines, "return found"]
    exec("def write(value):\n" + "\n".join(f"    {line}" for line in body), known)
    compiled: Callable[[Any], Any] = known["write"]
    return compiled


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


@cache
def _nested(form: type[Form]) -> list[str]:
    """Return the fields that contain forms."""
    return [field.name for field in msgspec.structs.fields(form) if _structs_in(field.type)]


def _structs_in(kind: Any) -> list[type[Any]]:
    if isinstance(kind, type) and not get_args(kind):
        return [kind] if issubclass(kind, msgspec.Struct) else []
    return [struct for one in get_args(kind) for struct in _structs_in(one)]


def _writer(kind: Any) -> Callable[[Any], Any] | None:
    """Return the function that writes a field of a type; None if msgspec encodes the value directly."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Notation):
        return None if kind.write is Notation.write else kind.write
    if origin in (Union, UnionType):
        by_model = {form.MODEL: _writer(form) for form in _structs_in(kind)}
        return (lambda value: by_model[type(value)](value)) if by_model else None  # type: ignore[misc]  # forms are written
    if origin is frozenset:
        return sorted
    if origin in (tuple, dict) and (write := _writer(inner[-2 if origin is tuple else -1])) is not None:
        if origin is tuple:
            return lambda values: [write(one) for one in values]
        return lambda values: {name: write(values[name]) for name in sorted(values)}
    if isinstance(kind, type) and not inner and issubclass(kind, Form):
        return kind.write if "write" in vars(kind) else _compiled(kind)
    return None


def _value(held: Any) -> Any:
    match held:
        case Form():
            return held.value()
        case tuple():
            return tuple(one.value() for one in held)
        case dict():
            return {name: one.value() for name, one in held.items()}
        case _:
            return held


# Errors: msgspec reports fault and location only in its message text.

_AT: Final = re.compile(r"(?s)(.*) - at `(?:key in )?\$([^`]*)`")
_MISSING: Final = re.compile(r"(?s)Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"(?s)Object contains unknown field `(.*)`")
_OTHER_TYPE: Final = re.compile(r"Expected `(.*)`, got `(.*)`")
_INVALID: Final = re.compile(r"(?s)Invalid (?:enum )?value '?(.*?)'?")
_OUTSIDE: Final = re.compile(r"Expected `(?:int|float)` ([<>].*)")
_TYPE_NAMES: Final[dict[str, str]] = {
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_FOUND_TYPE_NAMES: Final = _TYPE_NAMES | {"int": "a number"}


def _translated(
    fault: Exception, name: str, struct: type[msgspec.Struct] | None, by_tag: Mapping[str, type[msgspec.Struct]]
) -> Malformed:
    """Return the `Malformed` with the reason and the path of a fault; `struct` is that of the whole text, if known."""
    text, path = str(fault), ""
    if placed := _AT.fullmatch(text):
        text, path = placed.groups()
    root = name if struct is None or len(by_tag) == 1 else str(struct.__struct_config__.tag)
    where = root + path
    if isinstance(cause := fault.__cause__, Malformed):
        return located(cause, where)
    if cause is not None:
        return Malformed(Reason.FIELD_TYPE, f"{where}: {cause}")
    if found := _MISSING.fullmatch(text):
        return Malformed(Reason.FIELD_MISSING, f"{where}.{found[1]} is missing")
    if found := _UNKNOWN.fullmatch(text):
        known = _members_at(struct, path)
        hint = nearest(found[1], known) or f"; known members: {', '.join(sorted(known))}"
        return Malformed(Reason.FIELD_UNKNOWN, f"{where} has a member {found[1][:NAME_CHARACTERS_MAX]!r}{hint}")
    if found := _OTHER_TYPE.fullmatch(text):
        expected = " or ".join(_TYPE_NAMES.get(one, one) for one in found[1].split(" | "))
        return Malformed(Reason.FIELD_TYPE, f"{where} is {_FOUND_TYPE_NAMES.get(found[2], found[2])}, not {expected}")
    if found := _INVALID.fullmatch(text):
        hint = nearest(found[1], by_tag) if path == ".type" else ""
        return Malformed(Reason.FIELD_RANGE, f"{where} is {found[1][:NAME_CHARACTERS_MAX]!r}, which is not a valid value{hint}")
    if found := _OUTSIDE.fullmatch(text):
        return Malformed(Reason.FIELD_RANGE, f"{where} is not {found[1]}")
    reason = Reason.FIELD_RANGE if text.endswith("out of range") else Reason.FIELD_TYPE
    return Malformed(reason, f"{where}: {text[:200]}")


def _members_at(struct: type[msgspec.Struct] | None, path: str) -> list[str]:
    """Return the members that the object at a path may have; for a union, those of all its structs."""
    structs = [] if struct is None else [struct]
    for member in re.findall(r"\.([^.\[]+)", path):
        fields = [field for one in structs for field in msgspec.structs.fields(one) if field.encode_name == member]
        structs = [inner for field in fields for inner in _structs_in(field.type)]
    return sorted(set().union(*map(member_names, structs)))
