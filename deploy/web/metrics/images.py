"""Metrics of the image store: downloads, the folder, and what installers get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from deploy.web.metrics import catalog
from drivers.images.images import PHASES, Images
from drivers.images.installations import Installations
from drivers.images.server import ImageServer


def collect(images: Images, server: ImageServer, installations: Installations) -> Iterator[Metric]:
    """All metrics of the image store of a process."""
    phases = Counter(image.status.phase for image in images.images.values() if image.status is not None)
    by_phase, downloads = catalog.IMAGES.family(), catalog.IMAGE_DOWNLOADS.family()
    for phase in PHASES:
        by_phase.add_metric([phase], phases[phase])
    for result in ("done", "failed"):
        downloads.add_metric([result], images.downloads[result])
    responses = catalog.IMAGE_RESPONSES.family()
    for status in sorted({200, *server.responses}):
        responses.add_metric([str(status)], server.responses[status])
    yield from (by_phase, downloads, responses)
    yield catalog.IMAGES_STORED_BYTES.family(images.stored_bytes)
    yield catalog.IMAGE_DOWNLOADED_BYTES.family(images.received_bytes)
    yield catalog.IMAGE_SENT_BYTES.family(server.sent_bytes)
    yield catalog.IMAGE_STREAMS.family(server.streams)
    yield catalog.CONFIGURATIONS_RENDERED.family(installations.rendered)
