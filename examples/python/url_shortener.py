"""Short codes for URLs. A code is the beginning of the URL's hash, and the code's entity holds the URL:
one entity tells both whether a URL is known and where its code leads."""

import asyncio
import base64
import hashlib
import re
from typing import Any

from millrace import Abort, Request, Response, Service, asgi, field, query, route, transaction

URLS_AT_ONCE = 100
URL_CHARACTERS = 2048
# 48 bits; a code that another URL has already becomes longer.
CODE_CHARACTERS = 8
# What a Location header can hold, and a scheme that is safe to send a browser to.
SAFE_URL = re.compile(r"https?://[\x21-\x7e]+", re.IGNORECASE)


class Url(Service):
    target: str | None = field(default=None, name="url")

    @transaction
    async def claim(self, url: str) -> str:
        """Gives this code to a URL, if it is free."""
        if self.target is not None:
            return "Found" if self.target == url else "Taken"
        self.target = url
        return "NotFound"

    @query
    async def url(self) -> str | None:
        return self.target

    @route("POST /shorten")
    async def shorten(self, request: Request) -> list[list[str]]:
        urls = request.json()
        if not isinstance(urls, list) or len(urls) > URLS_AT_ONCE:
            raise Abort(f"the body must be a list of at most {URLS_AT_ONCE} URLs")
        return list(await asyncio.gather(*[code_of(url) for url in urls]))

    @route("GET /:short")
    async def follow(self, request: Request) -> Response:
        url = await Url(request.params["short"]).url()
        if url is None:
            return Response({"error": "there is no such short URL"}, status=404)
        return Response(status=302, headers={"location": url})


async def code_of(url: Any) -> list[str]:
    if not isinstance(url, str) or len(url) > URL_CHARACTERS or not SAFE_URL.fullmatch(url):
        raise Abort(f"a URL is http:// or https:// and visible ASCII, {URL_CHARACTERS} characters at most")
    code = base64.urlsafe_b64encode(hashlib.sha256(url.encode()).digest()).decode().rstrip("=")
    for length in range(CODE_CHARACTERS, len(code) + 1):
        outcome = await Url(code[:length]).claim(url)
        if outcome != "Taken":
            return [outcome, code[:length]]
    raise Abort("every code of this URL is taken")


services = [Url]
app = asgi(*services)
