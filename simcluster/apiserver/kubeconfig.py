"""A kubeconfig that leads to a server without credentials."""

import json
from pathlib import Path

__all__ = ["write_kubeconfig"]


def write_kubeconfig(url: str, path: Path) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content))
    return path
