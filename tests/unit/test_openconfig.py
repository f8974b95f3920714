"""The protocols of OpenConfig are the published ones, and their generated code is current."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from schemas.openconfig.generate import FOLDER, HERE, generate

PUBLISHED = {
    "cert.proto": "b3f211848e5352663d4bf022c2b6fd914ac8438c371a503a8d0572d8bdee83e6",
    "common.proto": "45d64bbd89fd952cee3a83ee5657a14d534f09089f1ccd3c5088bd268c457f13",
    "gnmi.proto": "45abf90bfee289544e2430c8ce1b5b10e4f851736a508ddba54d3cf12e82f7b7",
    "gnmi_ext.proto": "b0e96bd0c540cf249512783ee5abeb3f0d05805115f18c7d714ac90316981e2e",
    "os.proto": "493dbc757b654fa5e741c61141da29b968868088f0727f509956107fb06424fc",
    "system.proto": "fa5d4ff283af2178207dd94755ca5c901fd08a13ac44d28d8ae06a53cb8df30e",
    "types.proto": "f2cfcaf19623b93e1ce5c075bd745ea0b81e6b982f0752e9fb8297da2b85c12b",
}
"""The digests of the files in the Go modules github.com/openconfig/gnoi v0.4.1 and .../gnmi v0.14.1."""


def test_the_protocols_are_those_of_the_published_modules() -> None:
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in HERE.glob("*.proto")} == PUBLISHED


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    assert generate(tmp_path) == 0
    made = {path.name: path.read_text() for path in (tmp_path / FOLDER).iterdir()}
    assert made == {name: (HERE / name).read_text() for name in made}
    assert len(made) == 2 * len(PUBLISHED)
