"""The settings of the pipelines of a site: what they are told, and how they run."""

from dataclasses import dataclass, field
from typing import Annotated

from milepost.model.topics import check_filter
from milepost.pipelines.pace import Pace
from milepost.service.addresses import host_and_port
from milepost.service.reading import FileName, Inline, Range


@dataclass(frozen=True, slots=True)
class Pipelines:
    """For `milepost pipeline`."""

    folder: Annotated[str, FileName()] = "data/pipelines"
    topics: tuple[str, ...] = ("#",)
    late_s: float = 60.0
    pace: Annotated[Pace, Inline()] = field(default_factory=Pace)
    partitions: Annotated[int, Range(1, 10_000)] = 2
    memory: str = "1g"
    connector: str = ""
    http: str = "127.0.0.1:9465"

    def __post_init__(self) -> None:
        for one in self.topics:
            check_filter(one)
        if not self.folder:
            raise ValueError("folder is empty: pipelines keep what they remember in one")
        if self.http:
            host_and_port(self.http)
