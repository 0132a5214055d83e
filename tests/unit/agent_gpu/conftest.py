import pytest

from deviceplugin.gpus import health


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests is no driver that hangs."""
    monkeypatch.setattr(health, "PATIENCE_S", 60.0)
    monkeypatch.setattr(health, "HANG_S", 60.0)
