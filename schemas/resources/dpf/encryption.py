"""The encryption of what DPU clusters store: a key in a Secret, or a key service such as Vault."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from schemas.resources.dpf.operator_components import Component, Container
from schemas.resources.dpf.types import Int32, Name
from schemas.resources.model import Model, validated

AUTH_FIELDS = {"token": "token", "approle": "appRole", "userpass": "userpass", "kubernetes": "kubernetes", "jwt": "jwt"}
"""The field of each method of authentication."""

Text512 = Annotated[str, Field(min_length=1, max_length=512)]


class KeyReference(Model):
    """A key of a Secret or ConfigMap."""

    name: Name
    key: Name


class StaticKey(Model):
    """A key in a Secret."""

    key_secret_ref: KeyReference
    automatic_rotation_disabled: bool | None = None
    """Whether existing clusters keep their key when the Secret changes."""


class EncryptionAtRest(Model):
    """The encryption of new clusters of Kamaji. It never changes for an existing one."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            (
                "(self.provider == 'staticKey') == has(self.staticKey)",
                "staticKey must be set if and only if provider is staticKey",
            )
        )
    )

    provider: Literal["staticKey", "vaultKMS"]
    static_key: StaticKey | None = None


class VaultTLS(Model):
    """The certificate authority of the key service."""

    ca_config_map_ref: KeyReference | None = None


class VaultTransit(Model):
    """The key in the key service."""

    key_name: Annotated[str, Field(min_length=1, pattern=r"^\w(([\w.-]+)?\w)?$")]
    mount: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/?[^/\s][^\s]*$")] = "transit"


class MountPath(Model):
    """A method that may have another path in the key service."""

    auth_engine_mount_path: Text512 | None = None


class TokenAuth(Model):
    """A token in a Secret."""

    token_secret_ref: KeyReference


class AppRoleAuth(MountPath):
    """A role and its secret in one Secret."""

    secret_name: Name
    role_id_key: Annotated[Name, Field(alias="roleIDKey")]
    secret_id_key: Annotated[Name, Field(alias="secretIDKey")]


class UserpassAuth(MountPath):
    """A user and their password in one Secret."""

    secret_name: Name
    username_key: Name
    password_key: Name


class KubernetesAuth(MountPath):
    """A token of the plugin's ServiceAccount."""

    role: Name
    audience: Text512 | None = None


class JWTAuth(MountPath):
    """A JSON web token in a Secret."""

    role: Name
    jwt_secret_ref: KeyReference


class VaultAuth(Model):
    """How the plugin authenticates itself: the field of the method is given, and no other one."""

    model_config = ConfigDict(
        json_schema_extra=validated(
            *(
                (f"(self.method == '{method}') == has(self.{field})", f"{field} must be set only for method {method}")
                for method, field in AUTH_FIELDS.items()
            )
        )
    )

    method: Literal["token", "approle", "userpass", "kubernetes", "jwt"]
    token: TokenAuth | None = None
    app_role: AppRoleAuth | None = None
    userpass: UserpassAuth | None = None
    kubernetes: KubernetesAuth | None = None
    jwt: JWTAuth | None = None


class VaultKMS(Component):
    """A plugin that encrypts with a key service."""

    daemon: Container | None = None
    tls: VaultTLS | None = None
    auth: VaultAuth
    token_check_interval_seconds: Annotated[Int32 | None, Field(ge=5)] = None
    login_timeout_seconds: Annotated[Int32 | None, Field(ge=1)] = None
    address: Annotated[str, Field(min_length=1, max_length=2048, pattern=r"^https://.+$")]
    transit: VaultTransit
    namespace: Text512 | None = None
    """The namespace in the key service."""
