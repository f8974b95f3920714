"""Regenerates the protobuf code beside the .proto files: `python -m schemas.openconfig.generate`.

The .proto files are those of the Go modules github.com/openconfig/gnoi v0.4.1 and github.com/openconfig/gnmi v0.14.1,
byte for byte. Their imports begin with `github.com/`, from which protoc would derive Python packages that cannot be
imported. So protoc reads copies whose imports name this folder. As for the plane's own API, the generated modules are
committed, and no code is generated for services (stubs.py).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
FOLDER = "schemas/openconfig"
_IMPORT = re.compile(r'^import "github\.com/openconfig/[\w/]*/(\w+\.proto)";', re.MULTILINE)


def generate(root: Path) -> int:
    """Write the generated modules below `root`; returns protoc's exit status."""
    import grpc_tools
    from grpc_tools import protoc

    google = Path(grpc_tools.__file__).parent / "_proto"
    with TemporaryDirectory() as folder:
        copies = Path(folder) / FOLDER
        copies.mkdir(parents=True)
        for path in HERE.glob("*.proto"):
            (copies / path.name).write_text(_IMPORT.sub(rf'import "{FOLDER}/\1";', path.read_text()))
        sources = sorted(f"{FOLDER}/{path.name}" for path in copies.iterdir())
        outputs = [f"--python_out={root}", f"--pyi_out={root}"]
        status: int = protoc.main(["protoc", f"-I{folder}", f"-I{google}", *outputs, *sources])
    return status


if __name__ == "__main__":
    sys.exit(generate(HERE.parent.parent))
