"""The settings of the map: where it is served, to whom, and what is drawn below it."""

from dataclasses import dataclass
from typing import Annotated

from milepost.service.addresses import host_and_port
from milepost.service.reading import FileName, Range


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """For `milepost dashboard run`."""

    address: str = "127.0.0.1:8470"
    hosts: tuple[str, ...] = ()
    token: str = ""
    roads: Annotated[str, FileName()] = ""
    past_minutes: float = 10.0
    vehicles_max: Annotated[int, Range(1, 1_000_000)] = 20_000

    def __post_init__(self) -> None:
        host_and_port(self.address)
        if self.token and len(self.token) < 12:
            raise ValueError("token has fewer than 12 characters: leave it empty, and one is made at each start")
        if self.past_minutes > 240:
            raise ValueError("past_minutes is over 240")
