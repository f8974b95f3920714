"""Fixtures of tests with a real Open vSwitch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.host.openvswitch import Switch
from tests.support.openvswitch import switch_folder


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    """A switch without bridges, which the tests of a module share."""
    with switch_folder() as found:
        yield found
