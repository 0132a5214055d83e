"""Registering goes on after whatever kept it from happening."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from deviceplugin.kubelet.registration import Registration
from deviceplugin.kubelet.server import ResourceServer
from simcluster.kubelet import Kubelet
from tests.patience import eventually


class Unbindable:
    """A server as gRPC leaves it when the folder of its socket has just gone."""

    resource = "aliquot.dev/gpu-memory"
    socket = Path("/nonexistent/aliquot.sock")
    is_stopped = False

    def start(self) -> None:
        raise RuntimeError("Failed to bind to address unix:/nonexistent/aliquot.sock")

    def stop(self) -> None:
        self.is_stopped = True


def test_a_socket_that_cannot_be_bound_is_tried_again(kubelet: Kubelet) -> None:
    broken = Unbindable()
    attempts: list[int] = []

    def make_servers() -> Sequence[ResourceServer]:
        attempts.append(1)
        return [cast("ResourceServer", broken)] if len(attempts) == 1 else []

    registration = Registration(kubelet.folder / "device-plugins", make_servers, lambda: None)
    registration.start()
    try:
        eventually(lambda: registration.count == 1)
        assert broken.is_stopped
        assert len(attempts) == 2
    finally:
        registration.stop()


def test_a_mistake_of_ours_is_logged_and_does_not_end_it(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    def make_servers() -> Sequence[ResourceServer]:
        attempts.append(1)
        if len(attempts) == 1:
            raise KeyError("nobody thought of this")
        return []

    registration = Registration(kubelet.folder / "device-plugins", make_servers, lambda: None)
    registration.start()
    try:
        eventually(lambda: registration.count == 1)
        assert registration.problem == ""
        assert "nobody thought of this" in caplog.text
    finally:
        registration.stop()
