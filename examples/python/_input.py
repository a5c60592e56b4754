"""What routes of these examples check by hand, because their contract answers 409 to a wrong body."""

from typing import Any

from millrace import Abort, Request


def body_of(request: Request) -> dict[str, Any]:
    """The body's members; none if the body is not an object."""
    body = request.json()
    return body if isinstance(body, dict) else {}


def text_of(body: dict[str, Any], name: str, most: int = 1024, least: int = 0) -> str:
    """A member that must be a text."""
    value = body.get(name)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise Abort(f"{name} must be a string of {least} to {most} characters")
    return value


def whole_number(value: Any, name: str, least: int) -> int:
    """A value that must be a whole number from ``least`` on."""
    if type(value) is not int or value < least:
        raise Abort(f"{name} must be a whole number from {least}")
    return value
