"""The console script `dpuplane`. An interrupt during the import of the command line ends it without a traceback, as a
later one does.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""The exit status of a shell for a command that SIGINT has ended."""


def main() -> None:
    """Run the command line."""
    try:
        from deploy import cli
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    cli.main()
