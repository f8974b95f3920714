"""Regenerates the protobuf code beside the .proto files: `python -m schemas.api.generate`.

The generated modules are committed, so neither an installation nor a test needs protoc. They are generated from the
root of the tree, because protoc derives their import paths (`schemas.api.*`) from the paths it is given. No code
is generated for services: stubs.py and the server read their descriptors.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def generate(root: Path) -> int:
    """Run protoc over every .proto file of this folder; returns its exit status."""
    sources = [str(path.relative_to(root)) for path in sorted(HERE.glob("*.proto"))]
    return _run(root, [f"--python_out={root}", f"--pyi_out={root}", *sources])


def describe(root: Path, out: Path) -> None:
    """Write all .proto files, with comments, as a FileDescriptorSet. Raises OSError if protoc fails."""
    sources = [str(path.relative_to(root)) for path in sorted(HERE.glob("*.proto"))]
    if _run(root, ["--include_source_info", f"--descriptor_set_out={out}", *sources]):
        raise OSError(f"protoc could not read {', '.join(sources)}")


def _run(root: Path, arguments: list[str]) -> int:
    import grpc_tools
    from grpc_tools import protoc

    google = Path(grpc_tools.__file__).parent / "_proto"
    status: int = protoc.main(["protoc", f"-I{root}", f"-I{google}", *arguments])
    return status


if __name__ == "__main__":
    sys.exit(generate(HERE.parent.parent))
