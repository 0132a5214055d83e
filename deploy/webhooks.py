"""Writes base/webhooks.yaml: what is sent to the webhook is said once, in the webhook's own code.

`python -m deploy.webhooks` writes the file, `--check` only compares.
"""

import sys
from pathlib import Path

import yaml

from scheduler_ext.webhook.configuration import webhook_configurations

__all__ = ["is_fresh", "text"]

FILE = Path(__file__).parent / "base" / "webhooks.yaml"
NAMESPACE = "aliquot-system"
HEADER = "# Made by `python -m deploy.webhooks`; the extender fills in its own certificate.\n"


def text() -> str:
    # The same value twice is written twice: not every reader of manifests knows YAML's anchors.
    yaml.SafeDumper.ignore_aliases = lambda *_: True  # type: ignore[method-assign]
    objects = webhook_configurations(NAMESPACE)
    return HEADER + yaml.safe_dump_all(objects, sort_keys=False, width=100)


def is_fresh() -> bool:
    return FILE.exists() and FILE.read_text() == text()


if __name__ == "__main__":
    if "--check" not in sys.argv:
        FILE.write_text(text())
    elif not is_fresh():
        raise SystemExit(f"{FILE} is not what `python -m deploy.webhooks` makes; run it")
