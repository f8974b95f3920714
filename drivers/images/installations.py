"""Installations: what a DPU downloads, or is sent, for the identity that its zone installs, with its configuration.

The configuration is rendered when an installer asks for it. Only then are its secrets filled in; they stay in the
memory of this process while the token is valid, so that a download in several ranges gets the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias
from urllib.parse import quote

from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.images.deliveries import Delivery, Firmware, configuration_file, file_chunks
from drivers.images.images import Images, ReadyFile
from drivers.images.offload import Offload
from drivers.images.pldm import PACKAGE
from drivers.images.seeds import seed_image
from drivers.images.tokens import Claims, Tokens
from drivers.resource_worlds import ResourceWorlds
from eventstore.errors import TransientError
from projections.resources.conditions.world import World
from projections.resources.configuration.assembly import (
    FoundFlavor,
    cluster_of,
    flavor_of,
    inputs_of,
    stated_flavor,
)
from projections.resources.configuration.inputs import Join
from projections.resources.configuration.render import rendered
from projections.resources.go_templates.render import Fault
from projections.resources.image_files import firmware_fields, psid_of
from projections.resources.install_identity import image_of, install_identity
from projections.resources.kinds import BFB, BLUEFIELD_SOFTWARE, DPU_FLAVOR, short_name
from projections.resources.state import ObjectId, object_id
from projections.resources.wanted import Wanted
from projections.zones.dpus.host_installs import CertifiedHost, is_being_installed, is_of_host
from projections.zones.rows import Dpu

VALID_S = 4 * 3600
"""Time for which a token is valid: that of a join token in DPF, and longer than any installation."""
CONFIGURATIONS_MAX = 1_000
"""Maximum number of configurations in memory. An older one is rendered again when it is asked for."""
CONFIGURATION_FOLDER, SEED_FOLDER = "bfcfg", "seed"
FINAL_NAME = "bfb-to-install"
UNWANTED = "="
"""In the claims of a token, before the name of a DPU that no object wants. Its identity is the key of a BFB."""


class Joins(Protocol):
    """Makes the tokens by which DPUs join their clusters."""

    def fault(self, cluster: str) -> str:
        """Why no DPU can join the DPU cluster with this key now; empty if one can."""
        ...

    async def join(self, cluster: str, dpu: str) -> Join:
        """A new token for a DPU to join the DPU cluster with this key. Raises TransientError."""
        ...


RowOf: TypeAlias = Callable[[World, Wanted], Dpu | None]
"""The row of a wanted DPU in its zone; None if it has none."""


class Installation(NamedTuple):
    """The image and the flavor of an identity."""

    image: ObjectId
    flavor: FoundFlavor


class _Ready(NamedTuple):
    """An installation whose image is in the store and whose configuration can be rendered."""

    world: World
    wanted: Wanted
    claims: Claims
    installation: Installation
    file: ReadyFile


class Part(NamedTuple):
    """A part of a download: a file, or bytes."""

    path: Path | None
    data: bytes
    size: int
    hash: hashlib._Hash | None


class Content(NamedTuple):
    """The content of a download. `sha256` is the digest of all parts."""

    parts: Sequence[Part]
    sha256: bytes

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def digest_header(self) -> str:
        """The digest in the form of RFC 9530."""
        return f"sha-256=:{base64.b64encode(self.sha256).decode()}:"


class Installations:
    """Gives installers their URLs, and the server their content. `rendered` counts rendered configurations."""

    def __init__(
        self,
        worlds: ResourceWorlds,
        images: Images,
        tokens: Tokens,
        path_of: Callable[[str], Path],
        offload: Offload,
        *,
        base_url: Callable[[], str],
        joins: Joins,
        row_of: RowOf,
        now_ms: Callable[[], int],
    ) -> None:
        self.rendered = 0
        self._worlds = worlds
        self._images = images
        self._tokens = tokens
        self._path_of = path_of
        self._offload = offload
        self._base_url = base_url
        self._joins = joins
        self._row_of = row_of
        self._now_ms = now_ms
        self._configurations: dict[Claims, bytes] = {}

    async def url(self, dpu: str, identity: str) -> str:
        """The URL of an installation. A DPU that no object wants gets the BFB with the name of its image, without a
        configuration; the URL is empty if there is none, so that its image is known to the device only.

        Raises Unreachable while something is missing that will come, and NeedsOperator for a configuration that cannot
        be rendered, or a name that several BFBs have.
        """
        ready = await self._ready(dpu, identity)
        if ready is None:
            return await self._url_of_image(dpu, identity)
        claims, file = ready.claims, ready.file
        base = self._base(claims)
        if ready.installation.image.kind != BFB:
            return f"{base}/{quote(file.name)}"  # its configuration is on a medium of its own
        return f"{base}/??{quote(file.name)},{quote(configuration_name(claims))}?/{FINAL_NAME}"

    async def seed_url(self, dpu: str, identity: str) -> str:
        """The URL of the medium with the configuration of a DPU. It is empty for a DPU that no object wants, and for an
        image that has the configuration behind it. Raises as `url`."""
        ready = await self._ready(dpu, identity)
        if ready is None or ready.installation.image.kind == BFB:
            return ""
        return f"{self._base(ready.claims)}/{quote(seed_name(ready.claims))}"

    async def firmware(self, dpu: str, identity: str) -> Mapping[str, Firmware]:
        """The packages for the BMC of a DPU that its image names, by the PSID that each fits. The PSID is empty for one
        that fits every card. Raises as `url`."""
        ready = await self._ready(dpu, identity)
        if ready is None:
            return {}
        found = {}
        for field in firmware_fields(self._images.images[ready.installation.image.key].files):
            file = self._images.images[ready.installation.image.key].ready.get(field)
            if file is None:
                raise Unreachable(f"image: {field} of {short_name(ready.installation.image.key)} is not downloaded yet")
            versions = frozenset(text for name, text in file.kept.versions.items() if name != PACKAGE)
            url = f"{self._base(ready.claims)}/{quote(file.name)}"
            chunks = file_chunks(self._images, self._offload, self._path_of(file.kept.sha256), file)
            found[psid_of(field)] = Firmware(field, url, versions, file.kept.size, chunks)
        return found

    async def host_url(self, dpu: str, identity: str) -> str:
        """The URL of an installation for the agent of the DPU's host, which shows its certificate; empty if no object
        wants the DPU. Raises as `url`."""
        ready = await self._ready(dpu, identity)
        if ready is None:
            return ""
        _check_bfb(ready.installation)
        return f"{self._base_url()}/installations/{quote(dpu, safe='')}?image={quote(identity, safe='')}"

    async def host_content(self, host: CertifiedHost, dpu: str, identity: str) -> Content | None:
        """The image of a DPU, followed by its configuration, for the agent of a host; None for a DPU that this agent
        does not install. Each call makes a new token to join the cluster, so nothing is sent without a step that
        installs this image. Raises TransientError while something is missing that will come."""
        found = await self._worlds.wanted_dpu(dpu)
        if found is None or host_name(found[1]) != host.name:
            return None
        if not host.namespace:
            namespaces = self._worlds.host_namespaces(host.name)
            if len(namespaces) != 1:
                return None  # it has not reported yet, or its reports are refused with the reason
            host = host._replace(namespace=next(iter(namespaces)))
        world, wanted = found
        row = self._row_of(world, wanted)
        if row is None or not is_of_host(row, host):
            return None
        if not is_being_installed(row, identity):
            raise TransientFault(f"image: no step installs it on {dpu} now")
        installation = installation_of(world, wanted, identity)
        if isinstance(installation, Fault) or installation.image.kind != BFB:
            return None
        file = self._file(installation.image)
        if file is None:
            raise TransientFault(
                f"image: {short_name(installation.image.key)} is not in the image store of this process"
            )
        claims = Claims(wanted.at.key, identity, self._now_ms() // 1_000 + VALID_S)
        configuration = await self._render(claims, world, wanted, installation)
        parts = [self._part_of(file), Part(None, configuration, len(configuration), None)]
        return Content(parts, _digest(parts))

    async def delivery(self, dpu: str, identity: str) -> Delivery | None:
        """The delivery to a device that downloads nothing itself; None if no object wants the DPU. Raises as `url`."""
        ready = await self._ready(dpu, identity)
        if ready is None:
            return None
        _, _, claims, installation, file = ready
        _check_bfb(installation)

        async def configuration() -> tuple[str, bytes]:
            try:
                content = await self._configuration(claims, ready.world, ready.wanted, installation)
            except TransientError as error:
                raise Unreachable(str(error)) from error
            return configuration_file(dpu, content), content

        chunks = file_chunks(self._images, self._offload, self._path_of(file.kept.sha256), file)
        return Delivery(file.name, file.kept.size, chunks, configuration)

    async def _ready(self, dpu: str, identity: str) -> _Ready | None:
        found = await self._worlds.wanted_dpu(dpu)
        if found is None:
            return None
        world, wanted = found
        installation = installation_of(world, wanted, identity)
        if isinstance(installation, Fault):
            raise Unreachable(f"image: {installation}")
        file = self._file(installation.image)
        if file is None:
            raise Unreachable(f"image: {short_name(installation.image.key)} is not in the image store of this process")
        inputs = inputs_of(world, wanted, installation.flavor, None)
        cluster = cluster_of(world, wanted)
        if cluster is not None and (fault := self._joins.fault(cluster)):
            raise Unreachable(f"join: {short_name(cluster)} {fault}")
        text = inputs if isinstance(inputs, Fault) else rendered(inputs)
        if isinstance(text, Fault):
            raise NeedsOperator(f"configuration: {text}")
        if installation.image.kind == BLUEFIELD_SOFTWARE and not text.user_data:
            raise NeedsOperator("configuration: a template for bf.cfg has no user-data, which a BlueField-4 needs")
        claims = Claims(wanted.at.key, identity, self._now_ms() // 1_000 + VALID_S)
        return _Ready(world, wanted, claims, installation, file)

    async def _url_of_image(self, dpu: str, image: str) -> str:
        collections = [each for world in await self._worlds.all() for each in world.state.by_kind.items()]
        bfbs = (keys for collection, keys in collections if collection.partition("/")[2] == BFB)
        keys = sorted(key for found in bfbs for key in found if object_id(key).name == image)
        if not keys:
            return ""
        if len(keys) > 1:
            names = " and ".join(short_name(key) for key in keys[:2])
            raise NeedsOperator(f"image: {image} is the name of {names}; delete one of them")
        file = self._file(object_id(keys[0]))
        if file is None:
            raise Unreachable(f"image: {short_name(keys[0])} is not in the image store of this process")
        claims = Claims(UNWANTED + dpu, keys[0], self._now_ms() // 1_000 + VALID_S)
        return f"{self._base(claims)}/??{quote(file.name)}?/{FINAL_NAME}"

    def _base(self, claims: Claims) -> str:
        return f"{self._base_url()}/images/{self._tokens.issue(claims)}/bfb"

    async def content(self, token: str, names: Sequence[str]) -> Content | None:
        """The content of these files, one after the other; None if the token does not permit it. Raises
        TransientError while something is missing that will come."""
        claims = self._tokens.check(token, self._now_ms() // 1_000)
        if claims is None:
            return None
        if claims.dpu.startswith(UNWANTED):
            return self._content_of_image(object_id(claims.identity), names)
        world = await self._worlds.world_of(object_id(claims.dpu).source)
        wanted = world.derivation.dpus.winners.get(claims.dpu)
        installation = None if wanted is None else installation_of(world, wanted, claims.identity)
        if wanted is None or installation is None or isinstance(installation, Fault):
            return None
        parts = []
        for name in names:
            part = await self._part(name, claims, world, wanted, installation)
            if part is None:
                return None
            parts.append(part)
        return Content(parts, _digest(parts)) if parts else None

    def _content_of_image(self, image: ObjectId, names: Sequence[str]) -> Content | None:
        """The file of an image, if only that is asked for."""
        file = next((each for each in self._files(image) if [each.name] == list(names)), None)
        if file is None:
            return None
        part = self._part_of(file)
        return Content([part], _digest([part]))

    def _part_of(self, file: ReadyFile) -> Part:
        return Part(self._path_of(file.kept.sha256), b"", file.kept.size, file.hash)

    async def _part(
        self, name: str, claims: Claims, world: World, wanted: Wanted, installation: Installation
    ) -> Part | None:
        if name in (configuration_name(claims), seed_name(claims)):
            data = await self._configuration(claims, world, wanted, installation)
            return Part(None, data, len(data), None)
        for file in self._files(installation.image):
            if file.name == name:
                return self._part_of(file)
        return None

    async def _configuration(self, claims: Claims, world: World, wanted: Wanted, installation: Installation) -> bytes:
        """The configuration with its secrets: the same one in each range of a download."""
        known = self._configurations.get(claims)
        if known is not None:
            return known
        data = await self._render(claims, world, wanted, installation)
        now_s = self._now_ms() // 1_000
        for old in [each for each in self._configurations if each.expires_s <= now_s]:
            del self._configurations[old]
        while len(self._configurations) >= CONFIGURATIONS_MAX:
            del self._configurations[next(iter(self._configurations))]
        return self._configurations.setdefault(claims, data)  # another request may have rendered it meanwhile

    async def _render(self, claims: Claims, world: World, wanted: Wanted, installation: Installation) -> bytes:
        """A configuration with new secrets."""
        cluster = cluster_of(world, wanted)
        inputs = inputs_of(world, wanted, installation.flavor, None)
        join = None if cluster is None else await self._joins.join(cluster, wanted.at.name)
        found = inputs if isinstance(inputs, Fault) else rendered(inputs._replace(join=join))
        if isinstance(found, Fault):
            raise TransientFault(f"configuration: {found}")
        self.rendered += 1
        if installation.image.kind == BFB:
            return found.bf_cfg.encode()
        return seed_image(found.user_data, claims.identity, wanted.at.name)

    def _file(self, image: ObjectId) -> ReadyFile | None:
        return next(iter(self._files(image)), None)

    def _files(self, image: ObjectId) -> Iterator[ReadyFile]:
        found = self._images.images.get(image.key)
        return iter(()) if found is None else iter([*found.ready.values()])


def seed_name(claims: Claims) -> str:
    """The name of the medium with the configuration among the files of a token."""
    return f"{configuration_name(claims).replace(CONFIGURATION_FOLDER, SEED_FOLDER, 1)}.iso"


class TransientFault(TransientError):
    """A configuration that cannot be rendered now: its objects have changed since the URL was given."""


def host_name(wanted: Wanted) -> str:
    """The name of the host of a wanted DPU."""
    return str(wanted.spec.get("dpuNodeName") or wanted.spec.get("nodeName") or "")


def _check_bfb(installation: Installation) -> None:
    if installation.image.kind != BFB:
        raise NeedsOperator(f"image: {short_name(installation.image.key)} cannot be sent; only a BFB can")


def configuration_name(claims: Claims) -> str:
    """The name of the configuration among the files of a token: that of DPF, with the identity in place of a uid."""
    at = object_id(claims.dpu)
    return f"{CONFIGURATION_FOLDER}/{at.namespace}_{at.name}_{claims.identity.rpartition('/')[2]}"


def installation_of(world: World, wanted: Wanted, identity: str) -> Installation | Fault:
    """The image and the flavor of an identity: those that are wanted now, or those of an earlier wish, whose objects
    still exist. A DPU that waits for its turn in a rollout still has the earlier ones."""
    image = image_of(wanted)
    if image is not None and install_identity(world.state, wanted) == identity:
        flavor = flavor_of(world, wanted)
        return flavor if isinstance(flavor, Fault) else Installation(image, flavor)
    for earlier in _earlier(world, wanted, identity.rpartition("/")[0]):
        image = image_of(earlier)
        if image is not None and install_identity(world.state, earlier) == identity:
            flavor = stated_flavor(world, earlier.at, str(earlier.spec.get("dpuFlavor", "")))
            return flavor if isinstance(flavor, Fault) else Installation(image, flavor)
    return Fault("no image and flavor that exist have the identity that the zone installs")


def _earlier(world: World, wanted: Wanted, image: str) -> Iterator[Wanted]:
    """The DPU with each combination of an image of this name, a flavor and secure boot."""
    at, rows = wanted.at, world.state.objects.rows
    rest = {name: value for name, value in wanted.spec.items() if name not in ("bfb", "blueFieldSoftware")}
    for field, kind in (("bfb", BFB), ("blueFieldSoftware", BLUEFIELD_SOFTWARE)):
        if ObjectId(at.source, kind, at.namespace, image).key not in rows:
            continue
        for key in world.state.of_kind(at.source, DPU_FLAVOR):
            flavor = object_id(key)
            for secure_boot in (False, True) if flavor.namespace == at.namespace else ():
                spec = {**rest, field: image, "dpuFlavor": flavor.name, "secureBoot": secure_boot}
                yield wanted_with(wanted, spec)


def wanted_with(wanted: Wanted, spec: dict[str, object]) -> Wanted:
    """The wanted DPU with another spec."""
    return Wanted(at=wanted.at, owner=wanted.owner, spec=spec)


def _digest(parts: Sequence[Part]) -> bytes:
    """The digest of all parts. Only the first may be a file, whose hash is known already."""
    found = hashlib.sha256()
    for number, part in enumerate(parts):
        if part.hash is not None:
            if number:
                return b""
            found = part.hash.copy()
        else:
            found.update(part.data)
    return found.digest()
