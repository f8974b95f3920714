"""The certificate that a client command presents to the plane.

Its variables begin with DPUPLANE_CLIENT_TLS_, not with DPUPLANE_TLS_: a shell or container that holds the variables of
`dpuplane serve` has a server's certificate, which is no operator's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from deploy.tls.certificates import Certificates

F = TypeVar("F", bound=Callable[..., Any])


def _option(flag: str, envvar: str, text: str) -> Callable[[F], F]:
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option(flag, type=kind, envvar=envvar, show_envvar=True, metavar="FILE", help=text)


_CERT: Any = _option("--tls-cert", "DPUPLANE_CLIENT_TLS_CERT", "Your certificate: the plane is called with mutual TLS.")
_KEY: Any = _option("--tls-key", "DPUPLANE_CLIENT_TLS_KEY", "Its key.")
_CA: Any = _option("--tls-ca", "DPUPLANE_CLIENT_TLS_CA", "The authority whose certificates are believed.")


def tls_options(function: F) -> F:
    """Gives a command `tls_cert`, `tls_key` and `tls_ca`."""
    for option in (_CA, _KEY, _CERT):
        function = option(function)
    return function


def certificates_of(tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None) -> Certificates | None:
    """The certificates that were given; none without any of the three. Raises UsageError."""
    if tls_cert is None and tls_key is None and tls_ca is None:
        return None
    if tls_cert is None or tls_key is None or tls_ca is None:
        raise click.UsageError("--tls-cert, --tls-key and --tls-ca go together: give all three, or none")
    from deploy.tls.certificates import BadCertificates, Certificates

    try:
        return Certificates(tls_cert, tls_key, tls_ca)
    except BadCertificates as error:
        raise click.UsageError(str(error)) from error
