"""Addresses of listeners are checked before any listener opens, and unusable ones are refused by their setting."""

from __future__ import annotations

import pytest

from deploy.host.listen_addresses import bind_listener, check_free
from deploy.settings.addresses import Address
from eventstore.errors import FatalError

FREE = Address("127.0.0.1", 0)


def test_usable_addresses_stay_free_after_the_check() -> None:
    with bind_listener(FREE) as probe:
        port = probe.getsockname()[1]
    for _ in range(2):
        check_free({"http": Address("127.0.0.1", port), "listen": FREE, "agents": FREE})


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_a_used_address_is_refused_with_its_setting(host: str) -> None:
    with bind_listener(Address(host, 0)) as probe:
        used = Address(host, probe.getsockname()[1])
        with pytest.raises(FatalError) as caught:
            check_free({"http": FREE, "listen": used})
    assert str(caught.value) == f"listen: {used} cannot be listened on: Address already in use"


def test_two_listeners_cannot_have_one_address() -> None:
    with bind_listener(FREE) as probe:
        port = probe.getsockname()[1]
    same = Address("127.0.0.1", port)
    with pytest.raises(FatalError, match="agents: "):
        check_free({"http": same, "agents": same})


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_a_foreign_address_is_refused_with_its_setting(host: str) -> None:
    with pytest.raises(FatalError, match=rf"http: {host}:1 cannot be listened on: \w+"):
        check_free({"http": Address(host, 1)})
