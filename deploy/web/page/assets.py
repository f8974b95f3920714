"""The files of the page, read once: only files of the folder can be requested.

A browser revalidates each file by its tag, so an upgraded plane never runs an old script.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from deploy.web.page.requests import HEADERS, Handler, check_site, refused
from eventstore.errors import PermanentError

FOLDER = Path(__file__).parent / "static"
PREFIX = "/page/"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


class Asset(NamedTuple):
    """One file as served."""

    body: bytes
    kind: str
    tag: str


def load(folder: Path = FOLDER) -> dict[str, Asset]:
    """Every file of a known type, by its path."""
    return {path.relative_to(folder).as_posix(): _asset(path) for path in folder.rglob("*") if path.suffix in TYPES}


def routes() -> Iterator[web.RouteDef]:
    """`/`, and each file under /page/."""
    assets = load()
    yield web.get("/", _served(assets["index.html"]))
    for path, asset in assets.items():
        yield web.get(PREFIX + path, _served(asset))


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(body, TYPES[path.suffix], f'"{blake2b(body, digest_size=12).hexdigest()}"')


def _served(asset: Asset) -> Handler:
    headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": asset.tag}

    async def answer(request: web.Request) -> web.Response:
        try:
            if asset.kind != TYPES[".html"]:  # a link from another site may open the page, but may not load its scripts
                check_site(request)
        except PermanentError as error:
            return refused(error)
        if request.headers.get("If-None-Match") == asset.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=asset.body, headers=headers, content_type=asset.kind, charset="utf-8")

    return answer
