"""The certificate that a client command presents to the plane.

Its variables begin with DPUPLANE_CLIENT_TLS_, not with DPUPLANE_TLS_: a shell or container with the variables of
`dpuplane serve` has the certificate of a server, not of an operator.
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


_CERT: Any = _option("--tls-cert", "DPUPLANE_CLIENT_TLS_CERT", "Your certificate, for mutual TLS.")
_KEY: Any = _option("--tls-key", "DPUPLANE_CLIENT_TLS_KEY", "Key of the certificate.")
_CA: Any = _option("--tls-ca", "DPUPLANE_CLIENT_TLS_CA", "Trusted certificate authority of the plane.")


def tls_options(function: F) -> F:
    """Add the options `tls_cert`, `tls_key` and `tls_ca` to a command."""
    for option in (_CA, _KEY, _CERT):
        function = option(function)
    return function


def certificates_of(tls_cert: Path | None, tls_key: Path | None, tls_ca: Path | None) -> Certificates | None:
    """The given certificates; None if none of the three options is given. Raises UsageError."""
    if tls_cert is None and tls_key is None and tls_ca is None:
        return None
    if tls_cert is None or tls_key is None or tls_ca is None:
        raise click.UsageError("--tls-cert, --tls-key and --tls-ca: give all three, or none")
    from deploy.tls.certificates import BadCertificates, Certificates

    try:
        return Certificates(tls_cert, tls_key, tls_ca)
    except BadCertificates as error:
        raise click.UsageError(str(error)) from error
