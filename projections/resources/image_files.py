"""The files of a BFB or BlueFieldSoftware: where they come from, and their names on the image store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from projections.field_checks import quoted
from projections.resources.kinds import BFB, BLUEFIELD_SOFTWARE
from projections.resources.specs import JSON, Spec, read, read_json
from projections.resources.state import Resource, object_id

KINDS = (BFB, BLUEFIELD_SOFTWARE)

SHA256 = "dpuplane.io/sha256"
"""Annotation of a BFB: the SHA-256 checksum of its file. A fragment `#sha256=...` of the URL says the same."""

BMC_FIRMWARE = "dpuplane.io/bmc-firmware"
"""Annotation of a BFB: the URL of a package of firmware for the BMCs of its DPUs. A BlueFieldSoftware has a field."""

_CHECKSUM = re.compile(r"[0-9a-f]{64}")
_FRAGMENT = re.compile(r"sha256=([0-9A-Fa-f]{64})")
_URL = re.compile(r"https?://[^\s\x00-\x1f]+")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,250}")
_PSID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BUNDLE = "pldmFwBundle"
_SOFTWARE = ("osIso", _BUNDLE, "platformPldmFwBundle", "nicFw")


class ImageFile(NamedTuple):
    """A file that is downloaded. `sha256` is empty if its checksum is not known."""

    field: str
    """The field of the spec that has its URL; a bundle of one PSID has its name after a dot."""
    url: str
    sha256: str
    name: str
    is_bfb: bool


class _BFBSpec(Spec, frozen=True):
    url: str = ""
    file_name: str | None = None
    versions: dict[str, str] | None = None


def files_of(key: str, row: Resource) -> tuple[ImageFile, ...] | str:
    """The files of an object, or the fault of its spec."""
    at = object_id(key)
    if at.kind == BFB:
        spec = read(_BFBSpec, row)
        if isinstance(spec, str):
            return spec
        name = spec.file_name or f"{at.namespace}-{at.name}.bfb"
        image = _checked([("url", spec.url, row.annotations.get(SHA256, ""), name)], is_bfb=True)
        firmware = row.annotations.get(BMC_FIRMWARE)
        if firmware is None or isinstance(image, str):
            return image
        more = _checked([(BMC_FIRMWARE, firmware, "", f"{at.namespace}-{at.name}-bmc")], is_bfb=False)
        return more.replace("spec.", "metadata.annotations.", 1) if isinstance(more, str) else (*image, *more)
    fields = read_json(row)
    found = []
    for field in _SOFTWARE:
        given = fields.get(field)
        name = f"{at.namespace}-{at.name}-{field}"
        if not isinstance(given, dict):
            found += [] if given is None else [(field, str(given), "", name)]
            continue
        for psid, url in sorted(given.items()):
            if not _PSID.fullmatch(psid):
                return f"spec.{field}: {quoted(psid)} must be a PSID of letters, digits, '_', '-' and '.'"
            found.append((f"{field}.{psid}", str(url), "", f"{name}-{psid}"))
    return _checked(found, is_bfb=False)


def firmware_fields(files: tuple[ImageFile, ...] | str) -> list[str]:
    """The fields of files that are firmware of a BMC."""
    fields = [] if isinstance(files, str) else [file.field for file in files]
    return [field for field in fields if field == BMC_FIRMWARE or field.partition(".")[0] == _BUNDLE]


def psid_of(field: str) -> str:
    """The PSID of the cards that a file of firmware fits; empty for every card."""
    return "" if field == BMC_FIRMWARE else field.partition(".")[2]


def components(names: Mapping[str, str]) -> JSON:
    """Names of files by `ImageFile.field`, as the status of a BlueFieldSoftware has them."""
    found: JSON = {}
    for path, name in names.items():
        field, dot, psid = path.partition(".")
        if dot:
            found.setdefault(field, {})[psid] = name
        else:
            found[field] = name
    return found


def stated_versions(key: str, row: Resource) -> dict[str, str]:
    """The versions in the spec of a BFB, for an image that they cannot be read from."""
    spec = read(_BFBSpec, row) if object_id(key).kind == BFB else None
    return (spec.versions if isinstance(spec, _BFBSpec) else None) or {}


def _checked(found: list[tuple[str, str, str, str]], *, is_bfb: bool) -> tuple[ImageFile, ...] | str:
    files = []
    for field, text, stated, name in found:
        url, _, fragment = text.partition("#")
        in_url = _FRAGMENT.fullmatch(fragment)
        if not _URL.fullmatch(url):
            return f"spec.{field}: {quoted(url)} must be a URL that begins with http:// or https://"
        if fragment and in_url is None:
            return f"spec.{field}: {quoted(fragment)} after # must be sha256= and 64 hexadecimal digits"
        checksum = (stated or (in_url[1] if in_url else "")).lower()
        if checksum and not _CHECKSUM.fullmatch(checksum):
            return f"metadata.annotations[{SHA256}]: {quoted(checksum)} must be 64 hexadecimal digits"
        if in_url and checksum != in_url[1].lower():
            return f"metadata.annotations[{SHA256}]: differs from the checksum in spec.{field}"
        if not _FILE_NAME.fullmatch(name):
            return f"spec.fileName: {quoted(name)} must begin with a letter or digit and be a file name"
        files.append(ImageFile(field, url, checksum, name, is_bfb))
    return tuple(files) if files else "spec: names no file"
