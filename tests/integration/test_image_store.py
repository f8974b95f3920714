"""The image store over HTTPS: what installers get, in ranges too, and what nobody gets without a token."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from deploy.tls.self_signed import self_signed, server_context
from drivers.backends.bmc import NeedsOperator, Unreachable
from drivers.backends.simulated_transfers import ImageTransfers
from drivers.images.bfb import made_bfb
from drivers.images.images import Images
from drivers.images.installations import VALID_S, Installations
from drivers.images.joins import SimulatedJoins
from drivers.images.offload import in_place
from drivers.images.pldm import made_package
from drivers.images.seeds import read_seed
from drivers.images.server import ImageServer
from drivers.images.tokens import Tokens
from drivers.kubernetes.joins import KubernetesJoins
from drivers.resource_worlds import ResourceWorlds
from projections.resources import kinds
from projections.resources.install_identity import install_identity
from projections.zones.rows import Dpu
from schemas.resources.dpf.names import DPU_NODE_NAME
from tests.support.eventually import until
from tests.support.image_planes import CONTENT, ImagePlane, image_plane, key
from tests.support.image_server import ImageServer as SourceServer
from tests.support.image_server import ServedFile, content_of

DPU = "worker-d1"
SOFTWARE = kinds.BLUEFIELD_SOFTWARE
PASSWORD = "$1$salt$hash"
JOIN_TOKEN = b"\x01\x02\x03\x04\x05\x06" + bytes(range(7, 33))


class Store:
    """A plane with one DPU that objects want, and its image store."""

    def __init__(
        self,
        plane: ImagePlane,
        images: Images,
        server: ImageServer,
        installations: Installations,
        base: str,
        *,
        source: SourceServer,
        rows: dict[str, Dpu],
    ) -> None:
        self.rows = rows
        """The rows of DPUs in their zones."""
        self.plane = plane
        self.source = source
        self.images = images
        self.server = server
        self.installations = installations
        self.base = base
        self.context = ssl.create_default_context(cafile=str(plane.folder / "tls.pem"))

    async def identity(self) -> str:
        found = await self.installations._worlds.wanted_dpu(DPU)
        assert found is not None
        return install_identity(found[0].state, found[1]) or ""

    async def url(self) -> str:
        return await self.installations.url(DPU, await self.identity())


@asynccontextmanager
async def store(
    folder: Path, *, streams: int = 4, joins: Any = None, content: bytes = CONTENT
) -> AsyncIterator[tuple[Store, aiohttp.ClientSession]]:
    async with image_plane(folder) as (plane, server, session):
        images = await plane.process("r1", session)
        server.files["a.bfb"] = ServedFile(content)
        await plane.apply("image", {"url": server.url("a.bfb")})
        await plane.apply("worker", {}, kind=kinds.DPU_NODE)
        await plane.apply("d1", {"serialNumber": "s"}, kind=kinds.DPU_DEVICE, labels={DPU_NODE_NAME: "worker"})
        await plane.apply("cluster", {"type": "static"}, kind=kinds.DPU_CLUSTER)
        await plane.apply(
            "flavor", {"bfcfgParameters": ["A=1", f"ubuntu_PASSWORD='{PASSWORD}'"]}, kind=kinds.DPU_FLAVOR
        )
        await plane.apply("set", {"dpuTemplate": template("image")}, kind=kinds.DPU_SET)
        cert, tls_key = self_signed(folder, ["127.0.0.1"], datetime.now(UTC))
        base: list[str] = []
        rows: dict[str, Dpu] = {}
        installations = Installations(
            ResourceWorlds(plane.replicas["r1"]),
            images,
            Tokens(b"k" * 32),
            plane.store("r1").path,
            in_place,
            base_url=lambda: base[0],
            joins=joins or SimulatedJoins(lambda count: JOIN_TOKEN[:count]),
            row_of=lambda world, wanted: rows.get(wanted.at.name),
            now_ms=plane.now_ms,
        )
        serving = ImageServer(
            ("127.0.0.1", 0),
            installations,
            images,
            in_place,
            ssl=server_context(cert, tls_key),
            streams_at_once=streams,
        )
        host, port = await serving.start()
        base.append(f"https://{host}:{port}")
        try:
            await plane.until_phase("image", "Ready")
            found = Store(plane, images, serving, installations, base[0], source=server, rows=rows)
            connector = aiohttp.TCPConnector(ssl=found.context)
            async with aiohttp.ClientSession(connector=connector) as client:
                yield found, client
        finally:
            await serving.stop()


def template(image: str, flavor: str = "flavor") -> dict[str, Any]:
    return {"spec": {"bfb": {"name": image}, "dpuFlavor": flavor, "nodeEffect": {"noEffect": True}}}


async def get(client: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
    async with client.get(url, headers={name.replace("_", "-"): text for name, text in headers.items()}) as response:
        return response.status, response.headers, await response.read()


async def test_an_installer_gets_the_image_and_its_configuration_behind_it(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        url = await found.url()
        name = f"dpf_{DPU}_{(await found.identity()).rpartition('/')[2]}"
        assert url.endswith(f"/bfb/??dpf-image.bfb,bfcfg/{name}?/bfb-to-install")
        status, headers, body = await get(client, url)
        assert (status, int(headers["Content-Length"])) == (200, len(body))
        assert headers["Repr-Digest"] == f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
        assert body.startswith(CONTENT)
        bf_cfg = body[len(CONTENT) :].decode()
        assert "\nA=1\n" in bf_cfg
        assert PASSWORD in bf_cfg
        assert "kubeadm join cluster.dpf.simulated:6443 --token bcdefg.hijklmnopqrstuvw" in bf_cfg
        parts = url.partition("??")[0]
        assert (await get(client, f"{parts}dpf-image.bfb"))[2] == CONTENT
        assert (await get(client, f"{parts}bfcfg/{name}"))[2].decode() == bf_cfg
        assert found.server.responses == {200: 3}
        assert found.server.sent_bytes == 2 * len(body)
        assert found.installations.rendered == 1


async def test_ranges_resume_a_download_of_the_same_bytes(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        url = await found.url()
        _, headers, whole = await get(client, url)
        etag, size = headers["ETag"], len(whole)
        for begin, end in [
            (0, 1),
            (0, size),
            (len(CONTENT) - 5, len(CONTENT) + 5),
            (len(CONTENT), size),
            (size - 1, size),
        ]:
            status, headers, body = await get(client, url, Range=f"bytes={begin}-{end - 1}", If_Range=etag)
            assert (status, body) == (206, whole[begin:end])
            assert headers["Content-Range"] == f"bytes {begin}-{end - 1}/{size}"
        assert (await get(client, url, Range="bytes=100-"))[2] == whole[100:]
        assert (await get(client, url, Range="bytes=-7"))[2] == whole[-7:]
        assert (await get(client, url, Range=f"bytes={size}-"))[0] == 416
        assert (await get(client, url, Range="bytes=5-9", If_Range='"other"'))[::2] == (200, whole)
        assert (await get(client, url, Range="bytes=1-2,4-5"))[::2] == (200, whole)
        async with client.head(url) as response:
            assert (response.status, response.headers["Content-Length"]) == (200, str(size))
            assert await response.read() == b""


async def test_nothing_is_served_without_the_right_token(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        url = await found.url()
        token = url.split("/images/")[1].partition("/")[0]
        forged = token[:-1] + ("A" if token[-1] != "A" else "B")
        other = Tokens(b"x" * 32).issue(Tokens(b"k" * 32).check(token, 0))  # type: ignore[arg-type]
        for changed in (forged, other, "x", token.partition(".")[0]):
            assert (await get(client, url.replace(token, changed)))[0] == 404
        begin = url.partition("??")[0]
        for path in ("", "other.bfb", "bfcfg/dpf_other_x", "../token.key", "%2e%2e/token.key", "dpf-image.bfb?x=1"):
            assert (await get(client, begin + path))[0] == 404
        for query in ("??dpf-image.bfb,x?/bfb-to-install", "??dpf-image.bfb?/else", "??" + "dpf-image.bfb," * 9):
            assert (await get(client, begin + query))[0] == 404
        found.plane.ahead_ms += VALID_S * 1_000 + 1_000
        assert (await get(client, url))[0] == 404
        assert (await get(client, await found.url()))[0] == 200


async def test_a_token_ends_with_its_installation(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        url, earlier = await found.url(), await found.identity()
        await found.plane.apply("other", {"bfcfgParameters": ["B=2"]}, kind=kinds.DPU_FLAVOR)
        await found.plane.apply("set", {"dpuTemplate": template("image", "other")}, kind=kinds.DPU_SET)
        assert await found.identity() != earlier
        body = (await get(client, url))[2]
        assert b"\nA=1\n" in body, "the zone installs the earlier identity until the rollout releases the newer one"
        assert b"\nB=2\n" in (await get(client, await found.url()))[2]
        await found.plane.delete("set", kind=kinds.DPU_SET)
        assert (await get(client, url))[0] == 404


async def test_a_dpu_that_boots_media_gets_its_configuration_on_a_second_one(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        assert await found.installations.seed_url(DPU, await found.identity()) == "", "it is behind the BFB"
        await found.plane.apply("software", {"osIso": found.source.url("a.bfb")}, kind=SOFTWARE)
        await found.plane.until_phase("software", "Ready", kind=SOFTWARE)
        spec = {"blueFieldSoftware": {"name": "software"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}
        await found.plane.apply("set", {"dpuTemplate": {"spec": spec}}, kind=kinds.DPU_SET)
        identity = await found.identity()
        assert (await get(client, await found.url()))[2] == CONTENT
        url = await found.installations.seed_url(DPU, identity)
        assert url.endswith(f"/bfb/seed/dpf_{DPU}_{identity.rpartition('/')[2]}.iso")
        seed = (await get(client, url))[2]
        files = read_seed(seed)
        assert b"kubeadm join cluster.dpf.simulated:6443 --token bcdefg.hijklmnopqrstuvw" in files["user-data"]
        assert yaml.safe_load(files["user-data"])["users"][0]["passwd"] == PASSWORD
        assert yaml.safe_load(files["meta-data"]) == {"instance-id": identity, "local-hostname": DPU}
        assert (await get(client, url, Range="bytes=32768-"))[2] == seed[32768:], "as long as its token is valid"
        assert await found.installations.seed_url("another", "x/y") == ""


async def test_firmware_of_a_bmc_comes_with_the_versions_of_its_package(tmp_path: Path) -> None:
    package = made_package("26.10", [(1, "BF-26.10"), (2, "4.9.0")])
    async with store(tmp_path) as (found, client):
        assert await found.installations.firmware(DPU, await found.identity()) == {}
        found.source.files["bmc.fwpkg"] = ServedFile(package)
        url, address = found.source.url("a.bfb"), found.source.url("bmc.fwpkg")
        await found.plane.apply("software", {"osIso": url, "pldmFwBundle": {"MT_1": address}}, kind=SOFTWARE)
        await found.plane.until_phase("software", "Ready", kind=SOFTWARE)
        spec = {"blueFieldSoftware": {"name": "software"}, "dpuFlavor": "flavor", "nodeEffect": {"noEffect": True}}
        await found.plane.apply("set", {"dpuTemplate": {"spec": spec}}, kind=kinds.DPU_SET)
        ((psid, firmware),) = (await found.installations.firmware(DPU, await found.identity())).items()
        assert (psid, firmware.versions) == ("MT_1", {"BF-26.10", "4.9.0"})
        assert (await get(client, firmware.url))[2] == package
        assert await found.installations.firmware("another", "x/y") == {}


async def test_what_is_missing_is_said_before_the_device_is_touched(tmp_path: Path) -> None:
    joins = KubernetesJoins(lambda source: None, bytes, lambda: 0)
    async with store(tmp_path, joins=joins) as (found, _):
        with pytest.raises(Unreachable, match="DPUCluster dpf/cluster cannot be joined"):
            await found.url()
        await found.plane.delete("cluster", kind=kinds.DPU_CLUSTER)
        assert await found.url()
        assert await found.installations.url("another", "x/y") == ""
        with pytest.raises(Unreachable, match="no image and flavor that exist have the identity"):
            await found.installations.url(DPU, "image/0000000000")
        await found.plane.apply("bad", {"bfcfgParameters": ["rm"]}, kind=kinds.DPU_FLAVOR)
        await found.plane.apply("set", {"dpuTemplate": template("image", "bad")}, kind=kinds.DPU_SET)
        with pytest.raises(NeedsOperator, match=r"configuration: bfcfgParameters\[0\]"):
            await found.url()
        await found.plane.apply("later", {"url": "http://127.0.0.1:1/x.bfb"})
        await found.plane.apply("set", {"dpuTemplate": template("later")}, kind=kinds.DPU_SET)
        with pytest.raises(Unreachable, match="BFB dpf/later is not in the image store"):
            await found.url()


async def test_a_slow_client_does_not_hold_memory_or_others(tmp_path: Path) -> None:
    content = made_bfb([(62, content_of(32 << 20))])  # more than the buffers of a connection
    async with store(tmp_path, streams=2, content=content) as (found, client):
        url = await found.url()
        slow = [await _slow(found, url) for _ in range(2)]
        await found.plane.until(lambda: found.server.streams == 2, timeout_s=60)
        waiting = asyncio.ensure_future(get(client, url))
        await asyncio.sleep(0.2)
        assert not waiting.done(), "a third response waits for its turn"
        assert found.server.sent_bytes < len(content), "the server reads no further than its clients"
        for writer in slow:
            writer.transport.abort()
        assert (await asyncio.wait_for(waiting, 60))[0] == 200
        await found.plane.until(lambda: found.server.streams == 0, timeout_s=60)


async def _slow(found: Store, url: str) -> asyncio.StreamWriter:
    """A client that asks for an image and reads nothing."""
    host, port = found.base.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=found.context, limit=1)
    path = url.removeprefix(found.base)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return writer


async def test_content_that_is_gone_breaks_the_transfer_and_comes_back(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        url = await found.url()
        (path,) = (tmp_path / "r1" / "sha256").iterdir()
        path.unlink()
        with pytest.raises(aiohttp.ClientError):
            await get(client, url)
        await found.plane.until(path.exists, timeout_s=60)
        await found.plane.until(lambda: found.images.file_of(key("image")) is not None, timeout_s=60)
        assert (await get(client, url))[0] == 200


async def test_no_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with store(tmp_path) as (found, client):
        url = await found.url()
        token = url.split("/images/")[1].partition("/")[0]
        body = (await get(client, url))[2].decode(errors="replace")
        await get(client, url.replace("bfb-to-install", "x"))
    assert "bcdefg.hijklmnopqrstuvw" in body
    for secret in (token, "bcdefg.hijklmnopqrstuvw", PASSWORD):
        assert secret not in caplog.text


async def test_a_simulated_device_fetches_and_checks_its_image(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, _):
        transfers = ImageTransfers(lambda: found.context)
        found.plane.spawn("r1", transfers.run())
        good = transfers.begin(await found.url())
        await found.plane.until(lambda: good.is_done, timeout_s=60)
        assert (good.fault, transfers.completed) == ("", 1)
        bad = transfers.begin((await found.url()).replace("bfb-to-install", "x"))
        await found.plane.until(lambda: bad.is_done, timeout_s=60)
        assert bad.fault == "image: the server returned HTTP status 404"
        alone = transfers.begin((await found.url()).partition("??")[0] + "dpf-image.bfb")
        await found.plane.until(lambda: alone.is_done, timeout_s=60)
        assert alone.fault == "image: no configuration follows the image"


async def test_the_user_data_of_what_is_served_is_valid(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        body = (await get(client, await found.url()))[2][len(CONTENT) :].decode()
        data = body.partition("<<'END_OF_USER_DATA_0'\n")[2].partition("END_OF_USER_DATA_0")[0]
        assert yaml.safe_load(data)["users"][0]["passwd"] == PASSWORD


async def test_a_dpu_that_no_object_wants_gets_the_image_with_this_name_and_nothing_else(tmp_path: Path) -> None:
    async with store(tmp_path) as (found, client):
        assert await found.installations.url("other", "unknown") == ""
        url = await found.installations.url("other", "image")
        assert url.endswith("/bfb/??dpf-image.bfb?/bfb-to-install")
        assert url != await found.installations.url("another", "image"), "a BMC tells installations apart by URLs"
        assert (await get(client, url))[::2] == (200, CONTENT)
        parts = url.partition("??")[0]
        for name in ("dpf-image.bfb,dpf-image.bfb", "bfcfg/dpf_other_image", "dpf-other.bfb"):
            assert (await get(client, f"{parts}??{name}?/bfb-to-install"))[0] == 404
        await found.plane.apply("image", {"url": "https://elsewhere.example/a.bfb"}, namespace="second")
        await until(lambda: len(found.images.images) == 2)
        with pytest.raises(NeedsOperator, match=r"^image: image is the name of .*dpf/image and .*second/image"):
            await found.installations.url("other", "image")
