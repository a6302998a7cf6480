"""The committed protobuf code equals the output of the generator for the committed .proto."""

import re
from pathlib import Path

import pytest

from scripts.generate_wire import WIRE, generate

# Three lines contain the release of the compiler; a newer one writes the same code under another number.
RELEASE = re.compile(r"^# Protobuf Python Version: .*$|^    \d+,$", re.MULTILINE)


@pytest.mark.parametrize("name", ["datagram_pb2.py", "datagram_pb2.pyi"])
def test_the_committed_code_equals_the_output_of_the_generator(name: str, tmp_path: Path) -> None:
    generate(tmp_path)
    committed = (WIRE / "_generated" / name).read_text()
    assert RELEASE.sub("", (tmp_path / name).read_text()) == RELEASE.sub("", committed)
