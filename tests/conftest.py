"""What every kind of test may use."""

pytest_plugins = [
    "tests.support.kafka",
    "tests.support.secure_kafka",
    "tests.support.wheelhouse",
    "tests.support.docker",
    "tests.support.compose",
]
