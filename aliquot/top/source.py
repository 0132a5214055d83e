"""Where `aliquot top` looks: the cluster, the agent of this node, or the runs of this machine."""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import ExitStack
from urllib.parse import urlsplit

from aliquot import __version__, clusteraccess
from aliquot.errors import OperationError, UserError
from aliquot.protocol import view
from aliquot.protocol.assignment import MalformedError
from aliquot.protocol.view import ClusterView, NodeView

__all__ = ["AGENT", "Fetch", "add_options", "find_source"]

AGENT = "http://localhost:9410"
LOOK_S = 1.0
"""How long an agent of this machine may take to answer before it is taken for absent."""
ASK_S = 10.0

Fetch = Callable[[], ClusterView]
"""A view of now; to be called again and again."""

_log = logging.getLogger(__name__)


def add_options(parser: ArgumentParser) -> None:
    group = parser.add_argument_group(
        "where to look",
        "Without any of these: the agent of this node, else the runs of this machine, else the "
        "cluster; as `kubectl aliquot`, always the cluster.",
    )
    group.add_argument("--cluster", action="store_true", help="the whole cluster")
    group.add_argument("--agent", metavar="URL", help=f"a node agent other than {AGENT}")
    clusteraccess.add_options(parser)


def find_source(options: Namespace, until: ExitStack, *, is_kubectl: bool = False) -> Fetch:
    """`options` are those above, and the filters: who names a node or a namespace means pods.

    Connections are closed with `until`.
    """
    if options.agent:
        return lambda: _alone(_ask_agent(options.agent, ASK_S))
    said = (options.kubeconfig, options.context, options.extender, options.node)
    if options.cluster or is_kubectl or any(said):
        return _cluster(options, until)
    if _agent_answers():
        return lambda: _alone(_ask_agent(AGENT, ASK_S))
    # Only here: pods are looked at on machines without any GPU.
    from aliquot.top.runs import LocalRuns

    runs = LocalRuns()
    if not options.namespace and runs.has_any():
        return lambda: _alone(runs.view())
    if clusteraccess.knows_a_cluster():
        return _cluster(options, until)
    if not options.namespace and runs.has_gpus():
        return lambda: _alone(runs.view())
    raise UserError(
        f"there is nothing to show: no node agent answers at {AGENT}, no `aliquot run` lives here, "
        "there is no GPU, and no kubeconfig names a cluster; say --agent URL, --kubeconfig FILE or "
        "--extender http://HOST:9420"
    )


def _alone(node: NodeView) -> ClusterView:
    """Always the same form, whatever was asked, for those who read `-o json`."""
    return ClusterView(taken_at=node.taken_at, version=__version__, nodes=(node,))


def _cluster(options: Namespace, until: ExitStack) -> Fetch:
    from aliquot.kubernetes.errors import ApiError

    extender = clusteraccess.ExtenderLink(options)
    until.callback(extender.close)

    def fetch() -> ClusterView:
        try:
            return extender.get("/view", ClusterView)
        except ApiError as error:
            if error.not_found:
                raise OperationError(
                    f"no extender shows the cluster at {extender.place} ({error}); is Aliquot "
                    "installed there, and as new as this command? --extender says where else"
                ) from None
            if error.forbidden:
                raise OperationError(
                    f"{error}; looking takes the right to get services/proxy, or forward a port of "
                    "the extender and say --extender http://localhost:PORT"
                ) from None
            raise

    return fetch


def _agent_answers() -> bool:
    try:
        _ask_agent(AGENT, LOOK_S)
    except OperationError as error:
        _log.info("%s", error)
        return False
    return True


def _ask_agent(url: str, timeout_s: float) -> NodeView:
    import http.client  # the heaviest of all imports, and of no use to those who ask the cluster

    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise UserError(f"{url!r} is no address of an agent; write it like {AGENT}")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/view")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise OperationError(f"no node agent answers at {url}: {error}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise OperationError(f"{url} answered {answer.status}; is this a node agent of this age?")
    try:
        return view.decode(body, NodeView)
    except MalformedError as error:
        raise OperationError(f"what answers at {url} is no node agent: {error}") from None
