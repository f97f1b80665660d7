"""The hub that published weights come from. Where it cannot be found, that is said at once, not after many tries."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies

__all__ = ["hub", "unreachable"]


@contextmanager
def hub() -> Iterator[None]:
    """For that time, only what was fetched before is looked for if there is no way to the hub."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or unreachable() is not None
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def unreachable() -> str | None:
    """The hub's name if nobody here knows such a host; a proxy would know better than we."""
    from huggingface_hub import constants

    host = urlsplit(constants.ENDPOINT).hostname or ""
    if getproxies():
        return None
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return host
    return None
