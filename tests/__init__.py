"""Settings of every process of tests, benches and simulations.

Children are other programs, so gRPC must not try to survive in them: where it does, one broker in a hundred that is
started beside its calls is aborted before it begins.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
