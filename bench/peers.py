"""The peers of the matching benchmark, with a common interface."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import redis
import shapely
from numpy.typing import NDArray
from redis._parsers import _RESP2Parser

from milepost.model import Circle, Query
from milepost.model.places import EARTH_RADIUS_M, vectors
from milepost.model.queries import HasTag, normal_form

ROOT = Path(__file__).parent.parent
REDIS_EARTH_M = 6_372_797.560856
TILE38 = ROOT / ".cache" / "bin" / "tile38-server"
START_S_MAX = 10.0

Degrees = NDArray[np.float64]


@dataclass
class RedisGeo:
    """Redis GEO over a Unix socket, with the default parser of redis-py or with hiredis."""

    client: Any
    name: str
    slack: float = 0.01

    def load(self, latitudes: Degrees, longitudes: Degrees) -> None:
        for first in range(0, latitudes.size, 5_000):
            last = first + 5_000
            self.move(np.arange(first, min(last, latitudes.size)), latitudes[first:last], longitudes[first:last])

    def move(self, numbers: NDArray[np.integer], latitudes: Degrees, longitudes: Degrees) -> None:
        arguments = [
            value for triple in zip(longitudes.tolist(), latitudes.tolist(), numbers.tolist(), strict=True) for value in triple
        ]
        self.client.execute_command("GEOADD", "points", *arguments)

    def inside(self, circle: Circle) -> int:
        radius = circle.radius_m * REDIS_EARTH_M / EARTH_RADIUS_M
        place = circle.centre
        arguments = ("FROMLONLAT", place.longitude, place.latitude, "BYRADIUS", radius, "m")
        return len(self.client.execute_command("GEOSEARCH", "points", *arguments))

    def server_us(self, circles: list[Circle]) -> float:
        """Return the server time of one search, by its own statistics, without transfer."""
        self.client.config_resetstat()
        for circle in circles:
            self.inside(circle)
        return float(self.client.info("commandstats")["cmdstat_geosearch"]["usec_per_call"])

    def bytes_used(self) -> int:
        return int(self.client.info("memory")["used_memory"])


@dataclass
class Tile38:
    """Tile38 over a loopback port, by the Redis protocol."""

    client: Any
    name: str = "Tile38 WITHIN"
    slack: float = 0.01

    def load(self, latitudes: Degrees, longitudes: Degrees) -> None:
        for first in range(0, latitudes.size, 5_000):
            pipe = self.client.pipeline(transaction=False)
            for number in range(first, min(first + 5_000, latitudes.size)):
                pipe.execute_command("SET", "points", number, "POINT", float(latitudes[number]), float(longitudes[number]))
            pipe.execute()

    def inside(self, circle: Circle) -> int:
        arguments = ("LIMIT", 10_000_000, "IDS", "CIRCLE", circle.centre.latitude, circle.centre.longitude, circle.radius_m)
        return len(self.client.execute_command("WITHIN", "points", *arguments)[1])


class StrTree:
    """shapely's STRtree over points on a flat map, accurate enough at this size."""

    name = "shapely STRtree"
    slack = 0.05  # the map is flat

    def load(self, latitudes: Degrees, longitudes: Degrees) -> None:
        self._middle = float(np.radians(latitudes.mean()))
        self._tree = shapely.STRtree(shapely.points(longitudes * np.cos(self._middle), latitudes))

    def inside(self, circle: Circle) -> int:
        centre = shapely.Point(circle.centre.longitude * np.cos(self._middle), circle.centre.latitude)
        return int(self._tree.query(centre, predicate="dwithin", distance=float(np.degrees(circle.cap.angle_rad))).size)


class Scan:
    """A scan over all points with numpy."""

    name = "plain scan"
    slack = 0.0

    def load(self, latitudes: Degrees, longitudes: Degrees) -> None:
        self._vectors = vectors(latitudes, longitudes)

    def inside(self, circle: Circle) -> int:
        return int(np.flatnonzero(circle.contains(self._vectors)).size)


class FormulaScan:
    """A vectorised scan over all clauses of all formulas with numpy."""

    def __init__(self, queries: Iterable[Query]) -> None:
        self._numbers: dict[str, int] = {}
        clauses, owners = [], []
        for owner, query in enumerate(queries):
            for clause in normal_form(query):
                required_tags = [2 * self._number(atom) for atom in clause.required]
                excluded_tags = [2 * self._number(atom) + 1 for atom in clause.excluded]
                clauses.append([*required_tags, *excluded_tags, 0, 0, 0][:3])
                owners.append(owner)
        self._literals = np.array(clauses, np.int32).T.copy()
        self._owners = np.array(owners, np.int32)
        self._truth = np.tile([False, True], len(self._numbers) + 1)

    def matching(self, tags: frozenset[str]) -> NDArray[np.int32]:
        truth = self._truth.copy()
        truth[0] = True
        for tag in tags:
            number = self._numbers.get(tag, 0)
            if number:
                truth[2 * number], truth[2 * number + 1] = True, False
        is_true = truth[self._literals[0]] & truth[self._literals[1]] & truth[self._literals[2]]
        return np.unique(self._owners[is_true])

    def _number(self, atom: object) -> int:
        assert isinstance(atom, HasTag)
        return self._numbers.setdefault(atom.tag, len(self._numbers) + 1)


@contextlib.contextmanager
def running_redis() -> Iterator[list[RedisGeo]]:
    """Run Redis for the block; yield two clients, none if it is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield []
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/redis.sock"
        command = [program, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder]
        with _running(command):
            fast = _wait_until_ready(redis.Redis(unix_socket_path=path))
            pool = redis.ConnectionPool(redis.UnixDomainSocketConnection, path=path, parser_class=_RESP2Parser)
            yield [RedisGeo(redis.Redis(connection_pool=pool), "Redis GEOSEARCH"), RedisGeo(fast, "Redis GEOSEARCH, hiredis")]


@contextlib.contextmanager
def running_tile38() -> Iterator[Tile38 | None]:
    """Run Tile38 for the block; yield `None` if it is not built."""
    if not TILE38.exists():
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [str(TILE38), "-h", "127.0.0.1", "-p", str(port), "-d", folder, "--appendonly", "no", "-q"]
        with _running(command):
            yield Tile38(_wait_until_ready(redis.Redis(host="127.0.0.1", port=port)))


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(START_S_MAX)


def _wait_until_ready(client: Any) -> Any:
    """Return the client when its server answers."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            client.ping()
        except redis.exceptions.ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return client
