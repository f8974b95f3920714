"""The agent link under mutual TLS: an agent acts only for its own DPU, and only with relays of the plane."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from deploy.operations.device_tables import remote_device_source
from drivers.wire import agent_messages
from drivers.wire.agent_messages import NO_DIGEST, Ack, Heartbeat, Hello
from drivers.wire.links import LinkClosed
from drivers.wire.protocol import TableStatus
from drivers.wire.relay_messages import Frame, GoAway, Welcome, decode
from drivers.wire.websocket import Dialer
from tests.support.certs import HOUR, CertFiles, CertIssuer
from tests.support.eventually import until
from tests.support.guarded_links import GuardedRelay, agent_of, dialed, guarded_relay
from tests.support.rule_source import ALLOW, Tables, packed


def hello(*dpus: str) -> bytes:
    return agent_messages.encode(Hello("z", dpus, ["b"] * len(dpus), []))


async def test_an_agent_with_a_valid_certificate_gets_its_table(tmp_path: Path) -> None:
    tables = Tables(["d0"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with guarded_relay(tmp_path, tables) as served:
        certificates = served.cert_issuer.issue("dpu-agent/d0").certificates
        async with agent_of("d0", served.address, certificates) as agent:
            await until(lambda: agent.table == tables.table)
        assert served.denials.denied == served.denials.unauthenticated == 0


async def test_an_agent_that_names_another_dpu_is_rejected_and_the_other_keeps_its_link(tmp_path: Path) -> None:
    tables = Tables(["d0", "d1"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with guarded_relay(tmp_path, tables) as served:
        honest = served.cert_issuer.issue("dpu-agent/d0").certificates
        async with agent_of("d0", served.address, honest) as agent:
            await until(lambda: agent.table == tables.table)
            (before,) = served.relay.zones["z"].sessions
            liar = served.cert_issuer.issue("dpu-agent/d1")
            for said in (hello("d0"), hello("d1", "d0")):
                async with dialed(served.address, liar) as link:
                    link.send(said)
                    answer = decode(await link.receive())
                    assert isinstance(answer, GoAway)
                    assert answer.reason == "hello.dpus: 'd0' is not 'd1', the DPU that the link's certificate names"
                    with pytest.raises(LinkClosed):
                        await link.receive()
            assert list(served.relay.zones["z"].sessions) == [before]


async def test_a_second_hello_on_a_link_cannot_name_another_dpu(tmp_path: Path) -> None:
    tables = Tables(["d0", "d1"])
    async with guarded_relay(tmp_path, tables) as served, dialed(served.address, _dpu(served, "d1")) as link:
        link.send(hello("d1"))
        assert isinstance(decode(await link.receive()), Welcome)
        link.send(hello("d0"))
        answer = decode(await link.receive())
        assert isinstance(answer, GoAway)
        assert set(served.relay.zone_devices("z")) <= {"d1"}


async def test_acknowledgements_for_other_dpus_have_no_effect(tmp_path: Path) -> None:
    tables = Tables(["d0", "d1"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with guarded_relay(tmp_path, tables) as served:
        certificates = _dpu(served, "d0").certificates
        async with agent_of("d0", served.address, certificates), dialed(served.address, _dpu(served, "d1")) as link:
            await until(lambda: served.relay.zone_devices("z").get("d0", (0, 0))[1] == 5)
            before = served.relay.zone_devices("z")["d0"]
            link.send(hello("d1"))
            while not isinstance(decode(await link.receive()), Frame):
                pass
            everybody = (1 << 64) - 1
            lie = TableStatus(everybody, 1, 0, 0, 0, NO_DIGEST)
            link.send(agent_messages.encode(Ack([lie], [])))
            link.send(agent_messages.encode(Heartbeat([lie])))
            await link.receive()
            assert served.relay.zone_devices("z")["d0"] == before


@pytest.mark.parametrize("who", ["node-agent/d0", "operator/ann", "viewer/vic", "plane/api", "provisioner/p"])
async def test_no_other_role_gets_a_link(tmp_path: Path, who: str) -> None:
    async with guarded_relay(tmp_path, Tables(["d0"])) as served:
        with pytest.raises(LinkClosed, match=r"refuses the link: .*dpu-agent"):
            async with dialed(served.address, served.cert_issuer.issue(who)):
                pass
        assert (served.denials.denied, served.relay.zones) == (1, {})


async def test_a_simulator_may_act_for_a_whole_zone(tmp_path: Path) -> None:
    async with (
        guarded_relay(tmp_path, Tables(["d0", "d1"])) as served,
        dialed(served.address, served.cert_issuer.issue("simulator/s")) as link,
    ):
        link.send(hello("d0", "d1"))
        assert isinstance(decode(await link.receive()), Welcome)
        assert set(served.relay.zone_devices("z")) == {"d0", "d1"}


async def test_a_link_ends_when_its_certificate_expires(tmp_path: Path) -> None:
    expires_ms = 0

    async with guarded_relay(tmp_path, Tables(["d0"]), clock=lambda: expires_ms - 500) as served:
        short = _dpu(served, "d0")
        expires_ms = short.expires_ms
        async with dialed(served.address, short) as link:
            link.send(hello("d0"))
            async with asyncio.timeout(90):
                with pytest.raises(LinkClosed):
                    while True:
                        await link.receive()
        expired = served.cert_issuer.issue("dpu-agent/d0", now=datetime.now(UTC) - 2 * HOUR)
        with pytest.raises(LinkClosed):
            async with dialed(served.address, expired) as link:
                await link.receive()


async def test_an_agent_accepts_relays_of_the_plane_only(tmp_path: Path) -> None:
    """The certificate has the right host and authority and a valid key, but belongs to another role."""
    async with guarded_relay(tmp_path, Tables(["d0"]), as_role="node-agent/n1", host_names=("127.0.0.1",)) as served:
        with pytest.raises(LinkClosed, match="names node-agent/n1, and must name plane/NAME"):
            async with dialed(served.address, _dpu(served, "d0")):
                pass


async def test_a_relay_under_another_host_name_is_not_trusted(tmp_path: Path) -> None:
    async with guarded_relay(tmp_path, Tables(["d0"]), host_names=("relay.example.org",)) as served:
        with pytest.raises(LinkClosed, match=r"not valid for '127\.0\.0\.1'"):
            async with dialed(served.address, _dpu(served, "d0")):
                pass


async def test_a_relay_of_another_authority_or_without_tls_is_not_trusted(tmp_path: Path) -> None:
    async with guarded_relay(tmp_path / "a", Tables(["d0"])) as served:
        other = CertIssuer(tmp_path / "b").authority.cert
        with pytest.raises(LinkClosed, match="certificate that is not accepted: self-signed certificate"):
            async with dialed(served.address, _dpu(served, "d0")._replace(ca=other)):
                pass
        async with Dialer() as dialer:
            with pytest.raises(LinkClosed):
                await dialer.dial(served.address)


async def test_only_processes_of_the_plane_may_query_device_tables(tmp_path: Path) -> None:
    tables = Tables(["d0"])
    tables.put(5, {ALLOW: packed("10.0.0.0/8")})
    async with (
        guarded_relay(tmp_path, tables) as served,
        agent_of("d0", served.address, _dpu(served, "d0").certificates) as agent,
    ):
        await until(lambda: agent.table == tables.table)
        await until(lambda: served.relay.zone_devices("z")["d0"].version == 5)
        process = served.cert_issuer.issue("plane/api").certificates
        found = await remote_device_source(lambda: [served.address], process)(frozenset())
        assert found["z"]["d0"].version == 5
        for who in ("operator/ann", "dpu-agent/d0"):
            others = served.cert_issuer.issue(who).certificates
            assert await remote_device_source(lambda: [served.address], others)(frozenset()) == {}
        async with aiohttp.ClientSession() as session:
            url = f"https://{served.address}/no-such-page"
            async with session.get(url, ssl=process.client_context()) as response:
                assert response.status == 403


def _dpu(served: GuardedRelay, name: str) -> CertFiles:
    return served.cert_issuer.issue(f"dpu-agent/{name}")
