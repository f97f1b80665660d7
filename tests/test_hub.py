"""Without a way to the hub, that is said at once."""

from __future__ import annotations

import socket
from typing import Any, NoReturn

import pytest

import robustda.hub
from robustda.errors import ConfigError
from robustda.hub import hub, unreachable
from robustda.nets import create_backbone

constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> NoReturn:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setattr(robustda.hub, "getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")


@pytest.mark.usefixtures("nobody_knows")
def test_only_what_is_here_is_looked_for() -> None:
    assert unreachable() == "hub.example"
    with hub():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("nobody_knows")
def test_weights_that_are_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=r"resnet18 could not be fetched \(hub.example cannot be reached.*--weights"):
        create_backbone("resnet18", (64, 64, 3), weights="hub")


def test_a_hub_that_is_known_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robustda.hub, "getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given: [])
    before = constants.HF_HUB_OFFLINE
    assert unreachable() is None
    with hub():
        assert before == constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("nobody_knows")
def test_a_proxy_may_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robustda.hub, "getproxies", lambda: {"https": "http://proxy.example:3128"})
    assert unreachable() is None
