from pathlib import Path

import pytest

from deviceplugin.gpus import health
from deviceplugin.tenants import watch as tenantwatch
from deviceplugin.tenants.judgement import Account
from tests.unit.agent_gpu.tenant_scene import GIB, GPU, Scene


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests is no driver that hangs."""
    monkeypatch.setattr(health, "PATIENCE_S", 60.0)
    monkeypatch.setattr(health, "HANG_S", 60.0)
    monkeypatch.setattr(tenantwatch, "PATIENCE_S", 60.0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the container's usage file says."""
    booked = {GPU: 3 * GIB}
    monkeypatch.setattr(tenantwatch, "_account", lambda _: Account(dict(booked)))
    return booked
