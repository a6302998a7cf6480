from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMERGENCY: _ClassVar[Priority]
    SAFETY: _ClassVar[Priority]
    TRAFFIC: _ClassVar[Priority]
    CONVENIENCE: _ClassVar[Priority]
EMERGENCY: Priority
SAFETY: Priority
TRAFFIC: Priority
CONVENIENCE: Priority

class Datagram(_message.Message):
    __slots__ = ("version", "session", "init", "acknowledge", "report", "heartbeat", "close", "refusal", "publish", "subscribe", "unsubscribe", "notice", "received")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    INIT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    version: int
    session: int
    init: Init
    acknowledge: Acknowledge
    report: Report
    heartbeat: Heartbeat
    close: Close
    refusal: Refusal
    publish: Publish
    subscribe: Subscription
    unsubscribe: SubscriptionName
    notice: Notice
    received: Name
    def __init__(self, version: _Optional[int] = ..., session: _Optional[int] = ..., init: _Optional[_Union[Init, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., subscribe: _Optional[_Union[Subscription, _Mapping]] = ..., unsubscribe: _Optional[_Union[SubscriptionName, _Mapping]] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ..., received: _Optional[_Union[Name, _Mapping]] = ...) -> None: ...

class Init(_message.Message):
    __slots__ = ("report", "former", "joins_multicast")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    JOINS_MULTICAST_FIELD_NUMBER: _ClassVar[int]
    report: Report
    former: int
    joins_multicast: bool
    def __init__(self, report: _Optional[_Union[Report, _Mapping]] = ..., former: _Optional[int] = ..., joins_multicast: _Optional[bool] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("reporting_interval_ns", "edge", "resumed", "reset", "keys_ns", "cells")
    REPORTING_INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    KEYS_NS_FIELD_NUMBER: _ClassVar[int]
    CELLS_FIELD_NUMBER: _ClassVar[int]
    reporting_interval_ns: int
    edge: str
    resumed: bool
    reset: bytes
    keys_ns: int
    cells: Cells
    def __init__(self, reporting_interval_ns: _Optional[int] = ..., edge: _Optional[str] = ..., resumed: _Optional[bool] = ..., reset: _Optional[bytes] = ..., keys_ns: _Optional[int] = ..., cells: _Optional[_Union[Cells, _Mapping]] = ...) -> None: ...

class Cells(_message.Message):
    __slots__ = ("group", "groups", "port", "side_deg")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    SIDE_DEG_FIELD_NUMBER: _ClassVar[int]
    group: str
    groups: int
    port: int
    side_deg: float
    def __init__(self, group: _Optional[str] = ..., groups: _Optional[int] = ..., port: _Optional[int] = ..., side_deg: _Optional[float] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("endpoint", "latitude", "longitude", "seen_at", "heading_deg", "speed_mps")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    HEADING_DEG_FIELD_NUMBER: _ClassVar[int]
    SPEED_MPS_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    latitude: float
    longitude: float
    seen_at: int
    heading_deg: float
    speed_mps: float
    def __init__(self, endpoint: _Optional[str] = ..., latitude: _Optional[float] = ..., longitude: _Optional[float] = ..., seen_at: _Optional[int] = ..., heading_deg: _Optional[float] = ..., speed_mps: _Optional[float] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Close(_message.Message):
    __slots__ = ("cause",)
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    cause: int
    def __init__(self, cause: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "name", "detail", "about")
    REASON_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    reason: int
    name: str
    detail: str
    about: Name
    def __init__(self, reason: _Optional[int] = ..., name: _Optional[str] = ..., detail: _Optional[str] = ..., about: _Optional[_Union[Name, _Mapping]] = ...) -> None: ...

class Name(_message.Message):
    __slots__ = ("message", "subscription")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    message: MessageName
    subscription: SubscriptionName
    def __init__(self, message: _Optional[_Union[MessageName, _Mapping]] = ..., subscription: _Optional[_Union[SubscriptionName, _Mapping]] = ...) -> None: ...

class MessageName(_message.Message):
    __slots__ = ("source", "id")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    source: str
    id: int
    def __init__(self, source: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class SubscriptionName(_message.Message):
    __slots__ = ("owner", "id")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    id: int
    def __init__(self, owner: _Optional[str] = ..., id: _Optional[int] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("message", "matches")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    message: Message
    matches: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., matches: _Optional[_Iterable[int]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "source", "topic", "seen_at", "tags", "address", "place", "valid_until", "priority", "reliable", "fields", "body", "signature", "certificate")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Scalar, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    id: int
    source: str
    topic: str
    seen_at: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    address: Address
    place: Place
    valid_until: int
    priority: Priority
    reliable: bool
    fields: _containers.MessageMap[str, Scalar]
    body: bytes
    signature: bytes
    certificate: bytes
    def __init__(self, id: _Optional[int] = ..., source: _Optional[str] = ..., topic: _Optional[str] = ..., seen_at: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., address: _Optional[_Union[Address, _Mapping]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., valid_until: _Optional[int] = ..., priority: _Optional[_Union[Priority, str]] = ..., reliable: _Optional[bool] = ..., fields: _Optional[_Mapping[str, Scalar]] = ..., body: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Scalar(_message.Message):
    __slots__ = ("text", "integer", "number", "truth", "octets")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TRUTH_FIELD_NUMBER: _ClassVar[int]
    OCTETS_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    number: float
    truth: bool
    octets: bytes
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ..., truth: _Optional[bool] = ..., octets: _Optional[bytes] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("endpoint", "content", "area", "everyone", "notified", "incident")
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    AREA_FIELD_NUMBER: _ClassVar[int]
    EVERYONE_FIELD_NUMBER: _ClassVar[int]
    NOTIFIED_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    content: ToContent
    area: Area
    everyone: ToEveryone
    notified: ToNotified
    incident: str
    def __init__(self, endpoint: _Optional[str] = ..., content: _Optional[_Union[ToContent, _Mapping]] = ..., area: _Optional[_Union[Area, _Mapping]] = ..., everyone: _Optional[_Union[ToEveryone, _Mapping]] = ..., notified: _Optional[_Union[ToNotified, _Mapping]] = ..., incident: _Optional[str] = ...) -> None: ...

class ToContent(_message.Message):
    __slots__ = ("within",)
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    within: Area
    def __init__(self, within: _Optional[_Union[Area, _Mapping]] = ...) -> None: ...

class ToEveryone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ToNotified(_message.Message):
    __slots__ = ("incidents",)
    INCIDENTS_FIELD_NUMBER: _ClassVar[int]
    incidents: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, incidents: _Optional[_Iterable[str]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("owner", "query", "area", "around", "start", "end", "id", "qos", "share")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    AREA_FIELD_NUMBER: _ClassVar[int]
    AROUND_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    owner: str
    query: str
    area: Area
    around: Around
    start: int
    end: int
    id: int
    qos: int
    share: str
    def __init__(self, owner: _Optional[str] = ..., query: _Optional[str] = ..., area: _Optional[_Union[Area, _Mapping]] = ..., around: _Optional[_Union[Around, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., id: _Optional[int] = ..., qos: _Optional[int] = ..., share: _Optional[str] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("subscription", "message", "source", "topic", "tags", "place", "seen_at", "summary")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    subscription: int
    message: int
    source: str
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    place: Place
    seen_at: int
    summary: bytes
    def __init__(self, subscription: _Optional[int] = ..., message: _Optional[int] = ..., source: _Optional[str] = ..., topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., place: _Optional[_Union[Place, _Mapping]] = ..., seen_at: _Optional[int] = ..., summary: _Optional[bytes] = ...) -> None: ...

class Place(_message.Message):
    __slots__ = ("latitude", "longitude")
    LATITUDE_FIELD_NUMBER: _ClassVar[int]
    LONGITUDE_FIELD_NUMBER: _ClassVar[int]
    latitude: float
    longitude: float
    def __init__(self, latitude: _Optional[float] = ..., longitude: _Optional[float] = ...) -> None: ...

class Area(_message.Message):
    __slots__ = ("circle", "box", "polygon", "corridor", "union", "upstream")
    CIRCLE_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    POLYGON_FIELD_NUMBER: _ClassVar[int]
    CORRIDOR_FIELD_NUMBER: _ClassVar[int]
    UNION_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_FIELD_NUMBER: _ClassVar[int]
    circle: Circle
    box: Box
    polygon: Polygon
    corridor: Corridor
    union: Union
    upstream: Upstream
    def __init__(self, circle: _Optional[_Union[Circle, _Mapping]] = ..., box: _Optional[_Union[Box, _Mapping]] = ..., polygon: _Optional[_Union[Polygon, _Mapping]] = ..., corridor: _Optional[_Union[Corridor, _Mapping]] = ..., union: _Optional[_Union[Union, _Mapping]] = ..., upstream: _Optional[_Union[Upstream, _Mapping]] = ...) -> None: ...

class Circle(_message.Message):
    __slots__ = ("centre", "radius_m")
    CENTRE_FIELD_NUMBER: _ClassVar[int]
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    centre: Place
    radius_m: float
    def __init__(self, centre: _Optional[_Union[Place, _Mapping]] = ..., radius_m: _Optional[float] = ...) -> None: ...

class Box(_message.Message):
    __slots__ = ("south", "west", "north", "east")
    SOUTH_FIELD_NUMBER: _ClassVar[int]
    WEST_FIELD_NUMBER: _ClassVar[int]
    NORTH_FIELD_NUMBER: _ClassVar[int]
    EAST_FIELD_NUMBER: _ClassVar[int]
    south: float
    west: float
    north: float
    east: float
    def __init__(self, south: _Optional[float] = ..., west: _Optional[float] = ..., north: _Optional[float] = ..., east: _Optional[float] = ...) -> None: ...

class Polygon(_message.Message):
    __slots__ = ("outer", "holes")
    OUTER_FIELD_NUMBER: _ClassVar[int]
    HOLES_FIELD_NUMBER: _ClassVar[int]
    outer: Path
    holes: _containers.RepeatedCompositeFieldContainer[Path]
    def __init__(self, outer: _Optional[_Union[Path, _Mapping]] = ..., holes: _Optional[_Iterable[_Union[Path, _Mapping]]] = ...) -> None: ...

class Corridor(_message.Message):
    __slots__ = ("path", "half_width_m")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HALF_WIDTH_M_FIELD_NUMBER: _ClassVar[int]
    path: Path
    half_width_m: float
    def __init__(self, path: _Optional[_Union[Path, _Mapping]] = ..., half_width_m: _Optional[float] = ...) -> None: ...

class Union(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Area]
    def __init__(self, parts: _Optional[_Iterable[_Union[Area, _Mapping]]] = ...) -> None: ...

class Upstream(_message.Message):
    __slots__ = ("points", "latitudes", "longitudes", "half_widths", "start_seconds", "end_seconds", "start_metres", "end_metres")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    LATITUDES_FIELD_NUMBER: _ClassVar[int]
    LONGITUDES_FIELD_NUMBER: _ClassVar[int]
    HALF_WIDTHS_FIELD_NUMBER: _ClassVar[int]
    START_SECONDS_FIELD_NUMBER: _ClassVar[int]
    END_SECONDS_FIELD_NUMBER: _ClassVar[int]
    START_METRES_FIELD_NUMBER: _ClassVar[int]
    END_METRES_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedScalarFieldContainer[int]
    latitudes: _containers.RepeatedScalarFieldContainer[int]
    longitudes: _containers.RepeatedScalarFieldContainer[int]
    half_widths: _containers.RepeatedScalarFieldContainer[int]
    start_seconds: _containers.RepeatedScalarFieldContainer[int]
    end_seconds: _containers.RepeatedScalarFieldContainer[int]
    start_metres: _containers.RepeatedScalarFieldContainer[int]
    end_metres: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, points: _Optional[_Iterable[int]] = ..., latitudes: _Optional[_Iterable[int]] = ..., longitudes: _Optional[_Iterable[int]] = ..., half_widths: _Optional[_Iterable[int]] = ..., start_seconds: _Optional[_Iterable[int]] = ..., end_seconds: _Optional[_Iterable[int]] = ..., start_metres: _Optional[_Iterable[int]] = ..., end_metres: _Optional[_Iterable[int]] = ...) -> None: ...

class Around(_message.Message):
    __slots__ = ("radius_m",)
    RADIUS_M_FIELD_NUMBER: _ClassVar[int]
    radius_m: float
    def __init__(self, radius_m: _Optional[float] = ...) -> None: ...

class Path(_message.Message):
    __slots__ = ("latitudes", "longitudes")
    LATITUDES_FIELD_NUMBER: _ClassVar[int]
    LONGITUDES_FIELD_NUMBER: _ClassVar[int]
    latitudes: _containers.RepeatedScalarFieldContainer[float]
    longitudes: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, latitudes: _Optional[_Iterable[float]] = ..., longitudes: _Optional[_Iterable[float]] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("body", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class CertificateBody(_message.Message):
    __slots__ = ("id", "role", "key", "not_before", "not_after", "serial", "signing_key")
    ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    id: str
    role: str
    key: bytes
    not_before: int
    not_after: int
    serial: int
    signing_key: bytes
    def __init__(self, id: _Optional[str] = ..., role: _Optional[str] = ..., key: _Optional[bytes] = ..., not_before: _Optional[int] = ..., not_after: _Optional[int] = ..., serial: _Optional[int] = ..., signing_key: _Optional[bytes] = ...) -> None: ...

class Revocations(_message.Message):
    __slots__ = ("body", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RevocationsBody(_message.Message):
    __slots__ = ("issued_at", "serials")
    ISSUED_AT_FIELD_NUMBER: _ClassVar[int]
    SERIALS_FIELD_NUMBER: _ClassVar[int]
    issued_at: int
    serials: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, issued_at: _Optional[int] = ..., serials: _Optional[_Iterable[int]] = ...) -> None: ...
