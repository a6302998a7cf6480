"""The workload of the matching benchmark, the same for all peers, from fixed seeds."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from milepost.model import Around, Circle, EndpointId, Instant, Message, MessageId, Place, Query, Subscription, Tag
from milepost.model.places import EARTH_RADIUS_M
from milepost.model.queries import And, HasTag, Not, OnTopic, Or

TAGS = 1_000
"""Number of tags; under Zipf's law the k-th is drawn with weight 1/k."""
TAGS_PER_MESSAGE = 5
SOUTH, NORTH, WEST, EAST = 45.0, 55.0, 0.0, 15.0
NOW = Instant(1_900_000_000_000_000_000)
ENDPOINT = EndpointId("endpoint")
ORIGIN = Place(0.0, 0.0)

Degrees = NDArray[np.float64]


def scattered(count: int, seed: int = 1) -> tuple[Degrees, Degrees]:
    """Return latitudes and longitudes of endpoints in a country of about 1,100 x 1,000 km."""
    random = np.random.default_rng(seed)
    return random.uniform(SOUTH, NORTH, count), random.uniform(WEST, EAST, count)


def circles(share: float, count: int, seed: int = 2) -> list[Circle]:
    """Return circles inside the country that contain about a share of all endpoints."""
    random = np.random.default_rng(seed)
    land = (np.sin(np.radians(NORTH)) - np.sin(np.radians(SOUTH))) * np.radians(EAST - WEST) * EARTH_RADIUS_M**2
    radius_m = float(np.sqrt(land * share / np.pi))
    centres = zip(random.uniform(48, 52, count).tolist(), random.uniform(4, 11, count).tolist(), strict=True)
    return [Circle(Place(latitude, longitude), radius_m) for latitude, longitude in centres]


def draw_tags(random: np.random.Generator, rows: int, columns: int, *, is_even: bool) -> NDArray[np.int64]:
    """Return numbers of tags, uniformly distributed or by Zipf's law."""
    weight = np.ones(TAGS) if is_even else 1.0 / np.arange(1, TAGS + 1)
    return random.choice(TAGS, (rows, columns), p=weight / weight.sum())


def formulas(count: int, *, is_even: bool, seed: int = 3) -> Iterator[Query]:
    """Yield formulas of two to four tags, alternating between four forms."""
    random = np.random.default_rng(seed)
    atoms = [HasTag(Tag(f"tag{number}")) for number in range(TAGS)]
    count_made = 0
    while count_made < count:
        for numbers in draw_tags(random, min(10_000, count), 8, is_even=is_even).tolist():
            picked = [atoms[number] for number in dict.fromkeys(numbers)]
            if len(picked) < 4 or count_made == count:
                continue
            yield _form(count_made % 4, *picked[:4])
            count_made += 1


def _form(number: int, a: HasTag, b: HasTag, c: HasTag, d: HasTag) -> Query:
    match number:
        case 0:
            return And((a, b))
        case 1:
            return And((a, Or((b, c))))
        case 2:
            return And((a, b, Not(c)))
        case _:
            return Or((And((a, b)), And((c, d))))


def tagged_messages(count: int, *, is_even: bool, seed: int = 4) -> list[Message]:
    """Return messages with five different tags each."""
    random = np.random.default_rng(seed)
    found: list[Message] = []
    while len(found) < count:
        for numbers in draw_tags(random, count, 16, is_even=is_even).tolist():
            picked = list(dict.fromkeys(numbers))[:TAGS_PER_MESSAGE]
            if len(picked) == TAGS_PER_MESSAGE and len(found) < count:
                found.append(Message(MessageId(1), ENDPOINT, "x", NOW, frozenset(Tag(f"tag{number}") for number in picked)))
    return found


def topic_filters(count: int) -> Iterator[str]:
    """Filters, each of which lets one topic of `topics` pass: a quarter exact, a quarter ending in #, half with a +."""
    for number in range(count):
        match number % 4:
            case 0:
                yield f"city/{number}/parking/free"
            case 1:
                yield f"city/{number}/+/free"
            case 2:
                yield f"city/{number}/#"
            case _:
                yield f"+/{number}/parking/free"


def topics(count: int, filters: int, seed: int = 5) -> list[str]:
    """Return different topics, each of which matches one filter."""
    random = np.random.default_rng(seed)
    return [f"city/{number}/parking/free" for number in random.permutation(filters)[:count].tolist()]


def around_me(radius_m: float) -> Subscription:
    return Subscription(ENDPOINT, And((HasTag(Tag("hazard")), Not(HasTag(Tag("cleared"))))), Around(radius_m))


def hazards_at(areas: list[Circle]) -> list[Message]:
    """Return a hazard at the centre of each circle."""
    hazard = frozenset([Tag("hazard")])
    return [Message(MessageId(1), ENDPOINT, "x", NOW, hazard, place=area.centre) for area in areas]


def on_topic(topic: str) -> Message:
    return Message(MessageId(1), ENDPOINT, topic, NOW)


def subscription_for(query: Query) -> Subscription:
    return Subscription(ENDPOINT, query)


def subscription_to_topic(topic_filter: str) -> Subscription:
    return Subscription(ENDPOINT, OnTopic(topic_filter))
