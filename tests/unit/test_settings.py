"""Settings: the source of a value, and one sentence for each invalid value."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.settings.settings import Address, BadSettings, load_settings, parse_address


def test_precedence_of_settings_is_flag_environment_file_default(tmp_path: Path) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text("topic_prefix: file\npartitions: 3\nsimulate: 4\n")
    environment = {"DPUPLANE_TOPIC_PREFIX": "environment", "DPUPLANE_PARTITIONS": "5", "DPUPLANE_SERVER": "ignored:1"}
    settings = load_settings({"data": "d", "topic_prefix": "flag", "listen": None}, config, environment)
    assert settings.topic_prefix == "flag"
    assert settings.partitions == 5
    assert settings.simulate == 4
    assert settings.listen == Address("127.0.0.1", 7080)
    assert settings.data == Path("d")


def test_every_setting_can_come_from_the_environment() -> None:
    environment = {"DPUPLANE_KAFKA": "h:9092,[::1]:9093", "DPUPLANE_ROLE": "relay", "DPUPLANE_ZONES": "a, b"}
    settings = load_settings({}, None, environment)
    assert settings.role == "relay"
    assert settings.zone_names == {"a", "b"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "either data"),
        ({"data": "d", "kafka": "h:1"}, "either data"),
        ({"data": "d", "role": "api"}, "role 'api' needs kafka"),
        ({"kafka": "h:1", "role": "relay", "simulate": 3}, "simulate needs role 'all'"),
        ({"kafka": "h"}, "kafka: 'h' must be HOST:PORT"),
        ({"kafka": ","}, "kafka: ',' must be HOST:PORT"),
        ({"data": ""}, "data: '' must name a folder"),
        ({"kafka": "h:1", "state": ""}, "state: '' must name a folder"),
        ({"data": "d", "simulate": "many"}, "simulate: 'many' must be a number"),
        ({"data": "d", "simulate_hosts": "4"}, "simulate_hosts: '4' must have the form RACKSxHOSTS"),
        ({"data": "d", "listen": "0.0.0.0:7080"}, "listen 0.0.0.0:7080 is not on the loopback"),
        ({"data": "d", "http": "example.org:80"}, "http example.org:80 is not on the loopback"),
        ({"data": "d", "agents": "127.0.0.1:70000"}, "agents: '127.0.0.1:70000' must be HOST:PORT"),
        ({"data": "d", "partitions": 0}, "partitions: 0 must be at least 1"),
        ({"data": "d", "calls_per_second": -1}, "calls_per_second: -1 must be more than 0.0"),
        ({"data": "d", "zones": "a,b c"}, "zones: 'b c' must be 1 to 63"),
        ({"data": "d", "zones": " , "}, "zones: ' , ' must name a zone, or be omitted"),
        ({"data": "d", "topic_prefix": "a b"}, "topic_prefix: 'a b' must match"),
        ({"data": "d", "role": "boss"}, "role: 'boss' must be one of"),
        ({"data": "d", "kubeconfig": "a,b"}, "kubeconfig: 'cluster' names two clusters; give each a name of its own"),
        ({"data": "d", "kubeconfig": "e=a,e=b"}, "kubeconfig: 'e' names two clusters"),
        ({"data": "d", "kubeconfig": "e=a,b", "source": "e"}, "kubeconfig: 'e' names two clusters"),
        ({"data": "d", "kubeconfig": "e=in-cluster,in-cluster"}, "kubeconfig: 'in-cluster' is given twice"),
        ({"data": "d", "kubeconfig": "e=a,w=a"}, "kubeconfig: 'a' is given twice; a cluster must have one name"),
        ({"data": "d", "kubeconfig": "e="}, "kubeconfig: 'e=' must be NAME=FILE, or NAME=in-cluster"),
        ({"data": "d", "kubeconfig": "e w=a"}, "kubeconfig: 'e w' must be 1 to 63"),
        ({"data": "d", "kubeconfig": " , "}, "kubeconfig: ' , ' must name a cluster, or be omitted"),
    ],
)
def test_an_invalid_setting_is_named(flags: dict[str, object], says: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load_settings(flags, None, {})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("kubeconfig", "clusters"),
    [
        ("", []),
        ("~/.kube/config", [("home", "~/.kube/config")]),
        ("/a/b=c", [("home", "/a/b=c")]),
        ("east=/a/b=c, in-cluster", [("east", "/a/b=c"), ("home", "in-cluster")]),
        ("east=in-cluster,west=./w", [("east", "in-cluster"), ("west", "./w")]),
    ],
)
def test_source_clusters_have_a_name_or_that_of_the_setting_source(
    kubeconfig: str, clusters: list[tuple[str, str]]
) -> None:
    settings = load_settings({"data": "d", "source": "home"}, None, {"DPUPLANE_KUBECONFIG": kubeconfig})
    assert list(settings.source_clusters) == clusters
    assert [settings.edge(name).nodes.source for name, _ in clusters] == [name for name, _ in clusters]


def test_insecure_allows_listeners_off_the_loopback() -> None:
    settings = load_settings({"data": "d", "listen": "0.0.0.0:1", "insecure": True}, None, {})
    assert not settings.listen.is_loopback


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("- a\n", "must be a mapping"),
        ("a: [\n", "must be YAML"),
        ("data: d\nrole: api\ndata: e\n", "'data' is given twice, again in line 3"),
        ("nonsense: 1\ndata: d\n", "nonsense"),
    ],
)
def test_an_unusable_config_file_is_named(tmp_path: Path, content: str, says: str) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text(content)
    with pytest.raises(BadSettings) as caught:
        load_settings({}, config, {})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_config_file_changes_nothing(tmp_path: Path) -> None:
    config = tmp_path / "plane.yaml"
    config.write_text("")
    assert load_settings({"data": "d"}, config, {}).partitions is None


@pytest.mark.parametrize("address", [Address("127.0.0.1", 0), Address("::1", 7080), Address("localhost", 1)])
def test_addresses_survive_a_round_trip(address: Address) -> None:
    assert parse_address(str(address)) == address
    assert address.is_loopback


TLS: dict[str, object] = {"tls_cert": "c.pem", "tls_key": "k.pem", "tls_client_ca": "ca.pem"}


def test_listeners_off_the_loopback_need_tls() -> None:
    settings = load_settings({"data": "d", "listen": "0.0.0.0:1", "http": "[::]:2", **TLS}, None, {})
    assert (settings.tls_cert, settings.trust_domain) == (Path("c.pem"), "")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"tls_cert": "c"}, "tls_key and tls_client_ca must be given too"),
        ({"tls_client_ca": "c", "listen": "0.0.0.0:1"}, "tls_cert and tls_key must be given too"),
        ({"trust_domain": "a.example"}, "trust_domain needs tls_cert"),
        ({**TLS, "trust_domain": "A/b"}, "trust_domain: 'A/b' must be 1 to 255 lower-case letters"),
        ({"calls_per_second": 0}, "calls_per_second"),
        ({"calls_at_once": "no"}, "calls_at_once"),
    ],
)
def test_incomplete_tls_settings_are_refused(flags: dict[str, object], says: str) -> None:
    with pytest.raises(BadSettings) as caught:
        load_settings({"data": "d", **flags}, None, {})
    assert says in str(caught.value)
