"""Which API server, as whom: a pod's service account, or a kubeconfig."""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from aliquot.kubernetes.authentication import TokenFile
from aliquot.kubernetes.errors import NoClusterError
from aliquot.kubernetes.http import HttpClient

__all__ = ["Connection", "find_connection"]

_HOME_CONFIG = Path("~/.kube/config")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Connection:
    http: HttpClient
    namespace: str
    """Of the context or the service account."""


def find_connection(kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """In this order: the file, $KUBECONFIG, a pod's service account, ~/.kube/config."""
    try:
        if kubeconfig is None and not os.environ.get("KUBECONFIG") and _is_pod():
            return _of_service_account()
        # YAML is for people; pods go without it.
        from aliquot.kubernetes.kubeconfig import read_kubeconfig

        return Connection(*read_kubeconfig(kubeconfig or _named_file(), context))
    except (OSError, ValueError) as error:
        raise NoClusterError(
            f"cannot tell which cluster is meant: {error}; name a kubeconfig with $KUBECONFIG"
        ) from error


def _is_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _of_service_account() -> Connection:
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    http = HttpClient(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=ssl.create_default_context(cafile=_SERVICE_ACCOUNT / "ca.crt"),
        authentication=TokenFile(_SERVICE_ACCOUNT / "token"),
    )
    return Connection(http, (_SERVICE_ACCOUNT / "namespace").read_text().strip())


def _named_file() -> Path:
    """kubectl merges the files of $KUBECONFIG; the first that is there is what people have."""
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    if not named:
        return _HOME_CONFIG
    return next((each for each in named if each.is_file()), named[0])
