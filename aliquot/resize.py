"""`aliquot resize`: decides whether a run of this machine or a pod of the cluster is meant."""

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path

from aliquot.clusteraccess import knows_a_cluster
from aliquot.errors import UserError
from aliquot.run import resize as local
from aliquot.run.folder import own_folder
from aliquot.run.registry import living_runs, locked

HELP = "change the share of a run or a pod, while it runs"

POD_PREFIXES = ("pod/", "pods/", "po/")


def configure(parser: ArgumentParser) -> None:
    parser.description = (
        "Changes the caps of a run of this machine (`aliquot ps` shows their names) or of a pod's "
        "container; running processes obey at once, without being restarted. A living run of that "
        "name comes first; pod/NAME or -n means a pod. Of a pod, amounts are totals of the "
        "container, and memory is rounded up to the node's units."
    )
    parser.add_argument("id", metavar="NAME", help="a run as `aliquot ps` shows it, or a pod")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="new cap: 6Gi (of a run, also 25%%; of a pod, also 24, a number of units)",
    )
    parser.add_argument("--compute", metavar="PERCENT", help="new part of the GPU's time")
    pods = parser.add_argument_group("pods")
    pods.add_argument("-n", "--namespace", metavar="NAME", help="the pod's namespace")
    pods.add_argument(
        "-c", "--container", metavar="NAME", help="which container, if several have GPUs"
    )
    pods.add_argument("--context", metavar="NAME", help="of the kubeconfig")
    pods.add_argument("--kubeconfig", metavar="FILE", type=Path, help="instead of the usual one")
    pods.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="how long to wait for the node agent's answer; 30 when not given",
    )


def seconds(text: str) -> float:
    """For argparse, which says that the value is invalid."""
    given = float(text)
    if not 0 <= given < math.inf:
        raise ValueError
    return given


def run(options: Namespace) -> int:
    if options.memory is None and options.compute is None:
        raise UserError("nothing to change; say --memory SIZE, --compute PERCENT, or both")
    if _must_be_a_pod(options):
        return _resize_pod(options)
    if _is_living_run(options.id) or not knows_a_cluster():
        return local.run(options)
    try:
        return _resize_pod(options)
    except UserError as error:
        raise UserError(
            f"there is no run {options.id} on this machine; as a pod: {error}"
        ) from None


def _must_be_a_pod(options: Namespace) -> bool:
    said = (options.namespace, options.container, options.context, options.kubeconfig)
    return options.id.startswith(POD_PREFIXES) or any(each is not None for each in said)


def _is_living_run(name: str) -> bool:
    folder = own_folder()
    with locked(folder):
        return name in {each.id for each in living_runs(folder)}


def _resize_pod(options: Namespace) -> int:
    # Only here: the client of the API server takes longer to import than a local resize to run.
    from aliquot import pod_resize

    name = options.id.partition("/")[2] if options.id.startswith(POD_PREFIXES) else options.id
    return pod_resize.resize_pod(name, options)
