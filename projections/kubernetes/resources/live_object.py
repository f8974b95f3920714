"""An object of any kind as an API server has it: the fields that the plane may have written, as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.kubernetes.objects import Fields, Metadata

_EMPTY = msgspec.Raw(b"{}")
_NONE = msgspec.Raw(b"[]")


class ManagedFields(Fields, frozen=True):
    """The fields that a manager owns, in the form of server-side apply (FieldsV1)."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=_EMPTY, name="fieldsV1")


class LiveMetadata(Metadata, frozen=True):
    """Metadata with the owners of fields."""

    managed_fields: list[ManagedFields] | None = None


class LiveObject(Fields, frozen=True):
    """An object. `data` and `type` are fields of Secrets and ConfigMaps, the next three of EndpointSlices, and the last
    one of ServiceAccounts."""

    metadata: LiveMetadata
    spec: msgspec.Raw = _EMPTY
    status: msgspec.Raw = _EMPTY
    data: msgspec.Raw = _EMPTY
    type: str = ""
    address_type: str = ""
    ports: msgspec.Raw = _NONE
    endpoints: msgspec.Raw = _NONE
    automount_service_account_token: bool | None = None

    def document(self) -> dict[str, Any]:
        """The fields that a manifest may have, as JSON values."""
        about = self.metadata
        metadata = {
            "labels": about.labels or {},
            "annotations": about.annotations or {},
            "finalizers": about.finalizers or [],
            "ownerReferences": [msgspec.to_builtins(each) for each in about.owner_references or ()],
        }
        found: dict[str, Any] = {"metadata": metadata, "spec": msgspec.json.decode(self.spec)}
        found |= {"data": msgspec.json.decode(self.data), "type": self.type, "addressType": self.address_type}
        found |= {
            "ports": msgspec.json.decode(self.ports) or [],
            "endpoints": msgspec.json.decode(self.endpoints) or [],
        }
        if self.automount_service_account_token is not None:
            found["automountServiceAccountToken"] = self.automount_service_account_token
        return found

    def status_document(self) -> dict[str, Any]:
        """The status as JSON values."""
        return msgspec.json.decode(self.status) or {}

    def managed(self, manager: str, subresource: str = "") -> dict[str, Any]:
        """The fields that a manager owns by server-side apply."""
        for each in self.metadata.managed_fields or ():
            if (each.manager, each.operation, each.subresource) == (manager, "Apply", subresource):
                found: dict[str, Any] = msgspec.json.decode(each.fields_v1)
                return found
        return {}

    def others(self, manager: str, subresource: str = "") -> dict[str, dict[str, Any]]:
        """The fields of all other managers."""
        return {
            each.manager: msgspec.json.decode(each.fields_v1)
            for each in self.metadata.managed_fields or ()
            if each.manager != manager and each.subresource == subresource
        }


def object_name(metadata: Metadata) -> str:
    """The name of an object among those of its kind: `namespace/name`, or the name alone."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
