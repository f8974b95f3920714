"""Regenerates the protobuf code beside the .proto files: `python -m schemas.api.generate`.

The generated modules are committed, so neither an installation nor a test needs protoc. They are generated from the
root of the tree, because protoc derives their import paths (`schemas.api.*`) from the paths it is given.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent


def generate(root: Path) -> int:
    """Run protoc over every .proto file of this folder; returns its exit status."""
    sources = sorted(HERE.glob("*.proto"))
    services = [path for path in sources if "\nservice " in path.read_text()]
    return _protoc(root, sources, ["--python_out", "--pyi_out"]) or _protoc(root, services, ["--grpc_python_out"])


def describe(root: Path, out: Path) -> None:
    """Write what every .proto file says, comments included, as a FileDescriptorSet. Raises OSError if protoc fails."""
    sources = [str(path.relative_to(root)) for path in sorted(HERE.glob("*.proto"))]
    if _run(root, ["--include_source_info", f"--descriptor_set_out={out}", *sources]):
        raise OSError(f"protoc could not read {', '.join(sources)}")


def _protoc(root: Path, sources: list[Path], outputs: list[str]) -> int:
    paths = [str(path.relative_to(root)) for path in sources]
    return _run(root, [*(f"{output}={root}" for output in outputs), *paths])


def _run(root: Path, arguments: list[str]) -> int:
    from grpc_tools import protoc

    status: int = protoc.main(["protoc", f"-I{root}", *arguments])
    return status


if __name__ == "__main__":
    sys.exit(generate(HERE.parent.parent))
