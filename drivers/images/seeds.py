"""The medium with the configuration of a DPU: an ISO image that cloud-init reads in its first boot.

cloud-init's data source NoCloud looks for a file system with the label "cidata". It has the files user-data and
meta-data; an instance id that differs from that of the last boot makes cloud-init run once more.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException

from drivers.images.bfb import BadImage
from projections.field_checks import quoted

LABEL = "cidata"
_FILES = {"user-data": "/USERDATA.;1", "meta-data": "/METADATA.;1"}
"""The files by name, with the names that ISO 9660 gives them. cloud-init reads those of Joliet and Rock Ridge."""


def seed_image(user_data: str, instance: str, hostname: str) -> bytes:
    """The ISO image with a configuration."""
    contents = {"user-data": user_data, "meta-data": json.dumps({"instance-id": instance, "local-hostname": hostname})}
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    for name, text in contents.items():
        data = text.encode()
        iso.add_fp(io.BytesIO(data), len(data), _FILES[name], rr_name=name, joliet_path=f"/{name}")
    made = io.BytesIO()
    iso.write_fp(made)
    iso.close()
    return made.getvalue()


def read_seed(content: bytes) -> Mapping[str, bytes]:
    """The files of a seed by name, as cloud-init finds them. Raises BadImage."""
    iso = pycdlib.PyCdlib()
    try:
        iso.open_fp(io.BytesIO(content))
    except PyCdlibException as error:
        raise BadImage(f"is not an ISO 9660 image: {error}") from error
    label = iso.pvd.volume_identifier.decode("ascii", "replace").strip()
    if label != LABEL:
        raise BadImage(f"has the label {quoted(label)}, and cloud-init looks for {LABEL}")
    found = {}
    for name in _FILES:
        data = io.BytesIO()
        try:
            iso.get_file_from_iso_fp(data, joliet_path=f"/{name}")
        except PyCdlibException as error:
            raise BadImage(f"has no file {name}: {error}") from error
        found[name] = data.getvalue()
    iso.close()
    return found
