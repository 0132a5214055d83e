"""Which API server, as whom: a pod's service account, or a kubeconfig."""

import os
from dataclasses import dataclass
from pathlib import Path

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import NameValue, User, UserExec
from lightkube.core.exceptions import ConfigError

from aliquot.kubernetes.errors import NoClusterError

__all__ = ["Connection", "find_connection"]

_EXEC_V1 = "client.authentication.k8s.io/v1"
_HOME_CONFIG = Path("~/.kube/config")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Connection:
    http: httpx2.Client
    namespace: str
    """Of the context or the service account."""


def find_connection(kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """In this order: the file, $KUBECONFIG, a pod's service account, ~/.kube/config."""
    try:
        chosen = _with_user(_config(kubeconfig).get(context))
        http = Client(chosen, ConnectionParams())
    except (ConfigError, KeyError, OSError, msgspec.ValidationError, yaml.YAMLError) as error:
        raise NoClusterError(
            f"cannot tell which cluster is meant: {error}; name a kubeconfig with $KUBECONFIG"
        ) from error
    return Connection(http, chosen.namespace)


def _config(kubeconfig: Path | None) -> KubeConfig:
    if kubeconfig is not None:
        return _read(kubeconfig)
    # kubectl merges the files of $KUBECONFIG; the first that is there is what people have.
    named = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    if named:
        return _read(next((each for each in named if each.is_file()), named[0]))
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return KubeConfig.from_service_account(_SERVICE_ACCOUNT)
    return _read(_HOME_CONFIG)


def _read(path: Path) -> KubeConfig:
    path = path.expanduser()
    if not path.is_file():
        raise ConfigError(f"the kubeconfig {path} was not found")
    told = yaml.safe_load(path.read_text())
    try:
        # kubectl writes null where a list would be empty.
        lists = {name: told.get(name) or [] for name in ("clusters", "contexts", "users")}
        return KubeConfig.from_dict({**told, **lists}, fname=path)
    except (TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{path} is not a kubeconfig: {error}") from error


def _with_user(config: SingleConfig | None) -> SingleConfig:
    if config is None:
        raise ConfigError("the kubeconfig has no current context")
    user = config.user or User()
    if user.exec is not None:
        user = msgspec.structs.replace(user, exec=_with_version(user.exec))
    return config._replace(user=user)


def _with_version(plugin: UserExec) -> UserExec:
    """Tells a credential plugin which form its answer shall have, as kubectl does."""
    told = {
        "kind": "ExecCredential",
        "apiVersion": plugin.apiVersion,
        "spec": {"interactive": False},
    }
    variable = NameValue("KUBERNETES_EXEC_INFO", msgspec.json.encode(told).decode())
    version = plugin.apiVersion
    # The answer has the same form as v1beta1's, the latest that lightkube knows by name.
    return msgspec.structs.replace(
        plugin,
        apiVersion=f"{version}beta1" if version == _EXEC_V1 else version,
        env=[*(plugin.env or ()), variable],
    )
