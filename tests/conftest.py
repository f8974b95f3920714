"""Settings and fixtures of all kinds of tests."""

import os
import signal

from hypothesis import HealthCheck, settings

# How long an example takes, and how long it takes to draw one, says more of the machine than of it.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])

# A shell has what it runs in the background ignore Ctrl-C, and so would every child that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The contexts of whoever runs the tests are not those of the commands that the tests run.
os.environ["DPUPLANE_CLIENT_CONFIG"] = os.devnull

pytest_plugins = [
    "tests.support.fresh_seeds",
    "tests.support.slow_lane",
    "tests.support.two_workers",
    "tests.support.virtual_loop",
    "tests.support.kafka",
    "tests.support.secure_kafka",
    "tests.support.wheelhouse",
    "tests.support.kubernetes.fixtures",
    "tests.support.gnoi.fixtures",
    "tests.support.bmc_mock.fixtures",
    "tests.support.openvswitch_fixtures",
    "tests.support.docker",
    "tests.support.compose",
]
