"""The metadata of an object: names, labels, annotations and finalizers, by the rules of the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from schemas.resources.faults import Fault
from schemas.resources.structure import joined, shown

FIELDS: Mapping[str, Any] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "selfLink": str,
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": (str, type(None)),
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": dict,
    "annotations": dict,
    "ownerReferences": list,
    "finalizers": list,
    "managedFields": list,
}
MAX_ANNOTATION_BYTES = 256 * 1024
MAX_LABEL = 63
MAX_NAME = 253

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_TYPES = {str: "a string", int: "an integer", dict: "an object", list: "a list"}


def metadata_faults(metadata: Any) -> Iterator[Fault]:
    """The faults of the metadata of a new object."""
    if not isinstance(metadata, Mapping):
        yield Fault("metadata", "must be an object with a name")
        return
    if typed := list(_type_faults(metadata)):
        yield from typed
        return
    name, generated = metadata.get("name") or "", metadata.get("generateName") or ""
    if not name and not generated:
        yield Fault("metadata.name", "must be set")
    if name and not _is_name(name):
        yield Fault("metadata.name", _name_sentence(name))
    elif generated and not _is_name(f"{generated.rstrip('-.')}x"):
        yield Fault("metadata.generateName", _name_sentence(generated))
    if (namespace := metadata.get("namespace")) and not _is_label(namespace):
        yield Fault("metadata.namespace", f"must be a DNS label of at most {MAX_LABEL} characters, not {namespace!r}")
    yield from _map_faults(metadata)
    for at, finalizer in enumerate(metadata.get("finalizers") or ()):
        if not isinstance(finalizer, str) or not _is_qualified(finalizer):
            yield Fault(f"metadata.finalizers[{at}]", f"must be a qualified name, not {shown(finalizer)}")


def _type_faults(metadata: Mapping[str, Any]) -> Iterator[Fault]:
    for key, value in metadata.items():
        if key not in FIELDS:
            yield Fault(joined("metadata", key), "is no field here")
        elif value is not None and (not isinstance(value, FIELDS[key]) or isinstance(value, bool)):
            yield Fault(
                joined("metadata", key), f"must be {_TYPES.get(FIELDS[key], 'a string')}, but is {shown(value)}"
            )
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        for key, value in entries.items() if isinstance(entries, dict) else ():
            if not isinstance(value, str):
                yield Fault(joined(f"metadata.{field}", key), f"must be a string, but is {shown(value)}")


def _map_faults(metadata: Mapping[str, Any]) -> Iterator[Fault]:
    for key, value in (metadata.get("labels") or {}).items():
        at = joined("metadata.labels", key)
        if not _is_qualified(key):
            yield Fault(at, "must have a qualified name as its key")
        if value and (len(value) > MAX_LABEL or not _QUALIFIED.fullmatch(value)):
            yield Fault(at, f"must be at most {MAX_LABEL} letters, digits, '-', '_' and '.', not {shown(value)}")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if not _is_qualified(key.lower()):
            yield Fault(joined("metadata.annotations", key), "must have a qualified name as its key")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        yield Fault("metadata.annotations", f"must have at most {MAX_ANNOTATION_BYTES} bytes, but have {size}")


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME and _SUBDOMAIN.fullmatch(text) is not None


def _name_sentence(name: str) -> str:
    return f"must be at most {MAX_NAME} lower-case letters, digits, '-' and '.', not {shown(name)}"


def _is_label(text: str) -> bool:
    return len(text) <= MAX_LABEL and _DNS_LABEL.fullmatch(text) is not None


def _is_qualified(text: str) -> bool:
    prefix, separator, name = text.rpartition("/")
    return (not separator or _is_name(prefix)) and len(name) <= MAX_LABEL and _QUALIFIED.fullmatch(name) is not None
