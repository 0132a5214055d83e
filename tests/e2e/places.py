"""Where the harness keeps what is expensive to make."""

import os
from pathlib import Path

__all__ = ["CHECKOUT", "cache"]

CHECKOUT = Path(__file__).parents[2].resolve()


def cache() -> Path:
    """Outside of the checkout, so that a fresh clone does not compile Kubernetes again."""
    if named := os.environ.get("ALIQUOT_E2E_CACHE"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "aliquot-e2e"
