"""Refusals of addresses before a listener opens on them."""

from __future__ import annotations

import pytest

from deploy.host.listen_addresses import bind_listener, check_free
from deploy.settings.addresses import Address
from eventstore.errors import FatalError

FREE = Address("127.0.0.1", 0)


def test_addresses_that_can_be_had_are_free_again_afterwards() -> None:
    with bind_listener(FREE) as probe:
        port = probe.getsockname()[1]
    for _ in range(2):
        check_free({"http": Address("127.0.0.1", port), "listen": FREE, "agents": FREE})


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_one_that_is_taken_is_named_with_its_setting(host: str) -> None:
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
def test_what_is_no_address_of_this_machine_is_said_to_be_none(host: str) -> None:
    with pytest.raises(FatalError, match=rf"http: {host}:1 cannot be listened on: \w+"):
        check_free({"http": Address(host, 1)})
