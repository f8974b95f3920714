"""The facts that objects state about a DPU and its BMC: secure boot, zero trust, the versions of its image, and its
password.

The password is in the Secret that the DPUDevice names, else in the Secret `bmc-shared-password` beside the
DPFOperatorConfig, else in a file of this process. A Secret is read anew for each attempt, so that a change of it counts
at once; its content is only in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from drivers.backends.bmc import NeedsOperator
from drivers.redfish.installer import Wanted
from drivers.redfish.sessions import Credentials
from drivers.redfish.settings import Wants
from drivers.resource_worlds import ResourceWorlds
from projections.resources.conditions.world import World
from projections.resources.configuration.assembly import device_of
from projections.resources.install_identity import image_of, install_identity
from projections.resources.kinds import DPF_OPERATOR_CONFIG
from projections.resources.secret_names import BMC_PASSWORD, named_secrets
from projections.resources.specs import Spec, read
from projections.resources.state import object_id
from projections.resources.wanted import Wanted as WantedDpu

FACTORY_PASSWORD = "0penBmc"
"""The password with which BlueField BMCs are delivered. NVIDIA documents it."""
PASSWORD_KEY, USER_KEY = "password", "username"
ZERO_TRUST = "zero-trust"
_INVENTORY = {"DPU_BSP": "bsp"}
"""Entries of the firmware inventory, with the names of their versions in the observation of an image."""

ReadSecret: TypeAlias = Callable[[str, str, str], Awaitable[Mapping[str, bytes] | None]]
"""The data of a Secret by source, namespace and name; None if there is none. It may raise the errors of a device."""


class _OperatorConfigSpec(Spec, frozen=True):
    deployment_mode: str | None = None


class ObjectWants:
    """Reads the objects of DPUs. `user` and `password` are those of BMCs that no object gives a password for."""

    def __init__(self, worlds: ResourceWorlds, secret: ReadSecret, user: str, password: Callable[[], str]) -> None:
        self._worlds = worlds
        self._secret = secret
        self._user = user
        self._password = password

    async def wanted(self, dpu: str, image: str) -> Wanted:
        """The wishes of the objects of a DPU. The versions are known for an image that they want."""
        found = await self._worlds.wanted_dpu(dpu)
        if found is None:
            return Wanted()
        world, wanted = found
        secure_boot = wanted.spec.get("secureBoot")
        settings = Wants(
            secure_boot if isinstance(secure_boot, bool) else None,
            is_zero_trust=_is_zero_trust(world, wanted.at.source),
        )
        return Wanted(settings, _versions(world, wanted, image))

    async def credentials(self, dpu: str) -> Credentials:
        """The credentials for the BMC of a DPU. Raises NeedsOperator if there is no password."""
        found = await self._worlds.wanted_dpu(dpu)
        return await self._first(() if found is None else _secrets(*found))

    async def shared_credentials(self) -> Credentials:
        """The credentials that all BMCs share, for one whose DPU no object wants yet. Raises NeedsOperator."""
        return await self._first([each for world in await self._worlds.all() for each in _shared(world)])

    async def _first(self, secrets: Iterable[tuple[str, str, str]]) -> Credentials:
        missing = []
        for source, namespace, name in secrets:
            data = await self._secret(source, namespace, name)
            if data is not None and PASSWORD_KEY in data:
                user = data.get(USER_KEY, b"").decode(errors="replace").strip() or self._user
                return Credentials(user, _text(data[PASSWORD_KEY]), FACTORY_PASSWORD)
            missing.append(f"Secret {namespace}/{name}")
        if password := self._password():
            return Credentials(self._user, password, FACTORY_PASSWORD)
        tried = "".join(f"{each} gives this process no {PASSWORD_KEY}, and " for each in missing[:3])
        raise NeedsOperator(f"password: {tried}setting bmc_password_file is not set")


def _secrets(world: World, wanted: WantedDpu) -> Iterator[tuple[str, str, str]]:
    """The Secrets that may have the password of the BMC of a DPU, the more particular one first."""
    rows, source = world.state.objects.rows, wanted.at.source
    device = device_of(world, wanted)
    if device is not None and (row := rows.get(device.key)) is not None:
        yield from ((source, *each) for each in named_secrets(device.key, row))
    yield from (each for each in _shared(world) if each[0] == source)


def _shared(world: World) -> Iterator[tuple[str, str, str]]:
    """The Secrets with the password of all BMCs of a source."""
    for collection, keys in world.state.by_kind.items():
        if collection.partition("/")[2] == DPF_OPERATOR_CONFIG:
            for at in map(object_id, sorted(keys)):
                yield at.source, at.namespace, BMC_PASSWORD


def _is_zero_trust(world: World, source: str) -> bool:
    for key in world.state.of_kind(source, DPF_OPERATOR_CONFIG):
        spec = read(_OperatorConfigSpec, world.state.objects.rows[key])
        if not isinstance(spec, str):
            return spec.deployment_mode == ZERO_TRUST
    return False


def _versions(world: World, wanted: WantedDpu, image: str) -> dict[str, str]:
    at = image_of(wanted)
    seen = world.state.seen.get(at.key) if at is not None else None
    if seen is None or install_identity(world.state, wanted) != image:
        return {}
    versions: Any = seen.fields.get("versions")
    known = versions if isinstance(versions, dict) else {}
    return {entry: str(known[name]) for entry, name in _INVENTORY.items() if known.get(name)}


def _text(value: bytes) -> str:
    """A password as it is in a Secret or a file: tools write a line end behind it."""
    try:
        return value.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise NeedsOperator("password: the Secret of the BMC has one that is not text in UTF-8") from None
