"""A plugin of pytest: all tests of a folder go to one worker, in their order."""

from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

__all__ = ["pytest_xdist_make_scheduler"]


class ByFolder(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return str(PurePath(nodeid.partition("::")[0]).parent)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFolder:
    return ByFolder(config, log)
