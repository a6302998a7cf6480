"""Write the protobuf code of the datagram where it is committed, or into a folder: `python scripts/generate_wire.py [FOLDER]`."""

import sys
from pathlib import Path

from grpc_tools import protoc

WIRE = Path(__file__).resolve().parent.parent / "src" / "milepost" / "wire"


def generate(into: Path) -> None:
    """Run protoc over datagram.proto; the module and its type stub go into the folder."""
    arguments = [f"--proto_path={WIRE}", f"--python_out={into}", f"--pyi_out={into}", "datagram.proto"]
    if protoc.main(["protoc", *arguments]) != 0:
        sys.exit("protoc refused datagram.proto")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else WIRE / "_generated")
