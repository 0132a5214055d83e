"""How commands of people reach the extender: through the API server, or at its own address."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from aliquot.errors import UserError

__all__ = ["EXTENDER", "ExtenderLink", "add_options", "knows_a_cluster"]

EXTENDER = "aliquot-system/aliquot-extender:scheduler"

T = TypeVar("T")


def add_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="which cluster; the one that kubectl finds else",
    )
    group.add_argument("--context", metavar="NAME", help="which context of the kubeconfig")
    group.add_argument(
        "--extender",
        metavar="SERVICE",
        help="where the extender is: NAMESPACE/SERVICE:PORT, asked through the API server, or an "
        f"address such as http://localhost:9420 (default: {EXTENDER})",
    )


def knows_a_cluster() -> bool:
    """Whether there is anything that could name one; it may still be wrong or away."""
    return (
        bool(os.environ.get("KUBECONFIG"))
        or "KUBERNETES_SERVICE_HOST" in os.environ
        or Path("~/.kube/config").expanduser().is_file()
    )


class ExtenderLink:
    """Answers of the extender, decoded; to be closed in the end."""

    def __init__(self, options: Namespace) -> None:
        """By the options above; reads files, but asks nobody yet."""
        # Only here: the client of the API server takes longer to import than some commands to run.
        from aliquot.kubernetes.client import ApiClient, connect

        self.place = options.extender or EXTENDER
        if self.place.startswith("http"):
            self._client, self._proxy = ApiClient(self.place), ""
        else:
            self._proxy = _proxy(self.place)
            self._client = connect(options.kubeconfig, options.context)
        self.namespace = self._client.namespace

    def get(self, path: str, kind: type[T]) -> T:
        return self._client.get(f"{self._proxy}{path}", kind)

    def close(self) -> None:
        self._client.close()


def _proxy(extender: str) -> str:
    namespace, slash, service = extender.partition("/")
    if not (namespace and slash and service):
        raise UserError(f"{extender!r} says not where: write NAMESPACE/SERVICE:PORT or http://...")
    return f"/api/v1/namespaces/{quote(namespace)}/services/{quote(service, safe=':')}/proxy"
