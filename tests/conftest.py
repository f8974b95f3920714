"""What every kind of test may use."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # how long an example takes says more of the machine than of it

pytest_plugins = [
    "tests.support.kafka",
    "tests.support.secure_kafka",
    "tests.support.wheelhouse",
    "tests.support.docker",
    "tests.support.compose",
]
