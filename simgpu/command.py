"""`aliquot sim`: runs programs on simulated GPUs, and shows and breaks those GPUs."""

import argparse
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from aliquot.errors import UserError
from simgpu.child import relayed_signals
from simgpu.faults import FAULTS, FaultError
from simgpu.host import equip
from simgpu.models import SpecError
from simgpu.node import LIBRARIES, STATE_VARIABLE, Node, NodeError
from simgpu.status import as_json, as_tables, models_table, show

__all__ = ["HELP", "configure", "run"]

HELP = "run programs on simulated GPUs"

DEFAULT_GPUS = "1xA100-80G"

_DESCRIPTION = """\
Simulated GPUs for machines that have none: unmodified CUDA programs run on them, copies are real,
kernels take their time but compute nothing."""

_GPUS_HELP = "such as 2xA100-80G,1xL4, or a .toml or .json file; `aliquot sim models` lists models"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = _DESCRIPTION
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    running = actions.add_parser("run", help="run a command on GPUs of its own")
    running.add_argument("--gpus", default=DEFAULT_GPUS, metavar="SPEC", help=_GPUS_HELP)
    running.add_argument("--null", action="store_true", help="launches and allocations only count")
    running.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")

    exporting = actions.add_parser("env", help="print what a shell has to set; makes the node")
    exporting.add_argument("--gpus", metavar="SPEC", help=f"{_GPUS_HELP}; makes the node anew")
    _add_state(exporting)

    showing = actions.add_parser("status", help="show GPUs, processes, memory, exact busy time")
    showing.add_argument("-o", "--output", choices=("table", "json"), default="table")
    _add_state(showing)

    breaking = actions.add_parser("fault", help="let something go wrong on a GPU")
    breaking.add_argument("gpu", help="gpu0 or 0")
    breaking.add_argument("faults", nargs="+", metavar="FAULT", help=FAULTS)
    _add_state(breaking)

    equipping = actions.add_parser("host", help="give this machine GPUs for its containers")
    equipping.add_argument("--gpus", default=DEFAULT_GPUS, metavar="SPEC", help=_GPUS_HELP)
    equipping.add_argument("--name", required=True, help="the machine's, to tell its GPUs apart")
    equipping.add_argument("--libraries", type=Path, required=True, metavar="DIR")
    _add_state(equipping)

    actions.add_parser("models", help="list the GPU models that there are")


def _add_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        type=Path,
        metavar="PATH",
        help=f"the node's file; else {STATE_VARIABLE} names it, else it is {default_state()}",
    )


def run(options: argparse.Namespace) -> int:
    actions = {
        "run": _run,
        "env": _env,
        "status": _status,
        "fault": _fault,
        "host": _host,
        "models": _models,
    }
    try:
        return actions[options.action](options)
    except (NodeError, SpecError, FaultError) as error:
        raise UserError(str(error)) from error


def default_state() -> Path:
    """Where a node is that nobody has named; the same for all shells of one user."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder) / f"aliquot-sim-{os.getuid()}"


def _state(options: argparse.Namespace) -> Path:
    return Path(options.state or os.environ.get(STATE_VARIABLE) or default_state())


def _run(options: argparse.Namespace) -> int:
    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    if not words:
        raise UserError("no command to run; write it after --, as in `aliquot sim run -- nvtop`")
    if shutil.which(words[0]) is None:
        raise UserError(f"no command `{words[0]}` on the PATH")
    _need_libraries()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        relayed_signals() as relay,
        tempfile.TemporaryDirectory(prefix="aliquot-sim-", dir=memory) as folder,
        Node.create(Path(folder) / "node", options.gpus, null_mode=options.null) as node,
    ):
        return relay.run(words, node.environment())


def _env(options: argparse.Namespace) -> int:
    _need_libraries()
    path = _state(options)
    if options.gpus is not None:
        _need_unused(path)
    if options.gpus is not None or not path.exists():
        Node.create(path, options.gpus or DEFAULT_GPUS).close()
    else:
        Node.open(path).close()
    print(f"export {STATE_VARIABLE}={shlex.quote(str(path.absolute()))}")
    library_path = shlex.quote(str(LIBRARIES))
    print(f"export LD_LIBRARY_PATH={library_path}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}")
    return 0


def _need_unused(path: Path) -> None:
    """Who is on a node that is replaced would stay on the old one, unseen by all others."""
    try:
        with Node.open(path) as node:
            processes = node.snapshot().processes
    except NodeError:
        return
    if processes:
        pids = ", ".join(str(process.host_pid or process.pid) for process in processes)
        raise UserError(
            f"the node {path} is in use by {pids}; end them first, or name another --state"
        )


def _need_libraries() -> None:
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        if not (LIBRARIES / name).exists():
            raise UserError(f"the simulated {name} is not built; run `make native`")


def _host(options: argparse.Namespace) -> int:
    _need_libraries()
    made = equip(options.gpus, options.name, _state(options), options.libraries)
    print(f"{options.gpus}: {'made' if made else 'there already'}")
    return 0


def _status(options: argparse.Namespace) -> int:
    with Node.open(_state(options)) as node:
        snapshot = node.snapshot()
    if options.output == "json":
        print(as_json(snapshot))
    else:
        show(as_tables(snapshot))
    return 0


def _fault(options: argparse.Namespace) -> int:
    number = options.gpu.removeprefix("gpu")
    if not number.isdigit():
        raise UserError(f"no GPU `{options.gpu}`; write gpu0 or 0 for the first")
    with Node.open(_state(options)) as node:
        for fault in options.faults:
            node.inject(int(number), fault)
    return 0


def _models(options: argparse.Namespace) -> int:
    show(models_table())
    return 0
