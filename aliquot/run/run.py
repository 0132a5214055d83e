"""`aliquot run`: a command with its own share of a GPU, on a machine without Kubernetes."""

import argparse
import os
import re
import sys
from functools import partial
from pathlib import Path

import shim
from aliquot.arbitration import Arbitration
from aliquot.errors import OperationError, UserError
from aliquot.run import gpus, registry
from aliquot.run.child import attend, hold_signals, start
from aliquot.run.compute import add_compute_options, check_same, parse_compute
from aliquot.run.folder import own_folder
from aliquot.run.registry import RUN_VARIABLE, WHOLE_GPU, Compute, Membership, Run
from aliquot.sizes import format_size, parse_cap
from shim.limits import WHOLE

HELP = "run a command with a cap on the GPU memory and the GPU time it can use"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CONTAINER = Path("/etc/aliquot")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Runs a command that sees and gets at most SIZE of each GPU's memory and PERCENT of its "
        "time. Several runs share a GPU; all processes of one run share its cap."
    )
    parser.usage = (
        "aliquot run --memory SIZE [--compute PERCENT [--policy POLICY] [--weight N]] "
        "[--gpu N|UUID]... [--name NAME] -- COMMAND ..."
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="cap on each GPU: 4Gi, 4096Mi, 25%% of the GPU, or bytes",
    )
    add_compute_options(parser)
    parser.add_argument(
        "--gpu",
        metavar="N|UUID",
        action="append",
        default=[],
        help="a GPU that the command sees, by number or uuid; all when not given",
    )
    parser.add_argument(
        "--name",
        help="names the run; with the name of a run that lives, the command joins its share",
    )
    parser.add_argument(
        "words", metavar="COMMAND", nargs=argparse.REMAINDER, help=argparse.SUPPRESS
    )


def run(options: argparse.Namespace) -> int:
    command = options.words[1:] if options.words[:1] == ["--"] else options.words
    _check(options, command)
    # NVML can be slow: it is asked while Ctrl-C still ends us, and while we hold nobody up.
    compute = parse_compute(options)
    asks = options.memory or options.gpu or compute
    chosen = gpus.choose(gpus.find(), options.gpu) if asks else []
    caps = [(gpu, _cap(options.memory, gpu)) for gpu in chosen if options.memory]
    mask = hold_signals()
    folder = own_folder()
    with registry.locked(folder):
        share = _join(folder, options.name, chosen if options.gpu else [], caps)
        if share is not None and compute is not None:
            check_same(share, compute)
        if share is None and compute is not None and not caps:
            # As for pods: who asks for a part of the time gets that part of the memory.
            caps = [(gpu, gpu.memory_bytes * compute.share // WHOLE) for gpu in chosen]
        membership = Membership(share or _create(folder, options.name, caps, compute or WHOLE_GPU))
    try:
        try:
            pid = start(command, _environment(membership.run), mask)
        except OSError as error:
            return _fail_like_a_shell(command[0], error)
        membership.announce(pid, command)
        _let_go_of_streams(keep=membership.descriptor)
        # Descriptors that are opened from here on stay.
        Arbitration(folder / ".arbiter", partial(registry.members, folder)).start()
        return attend(pid)
    finally:
        membership.leave()


def _fail_like_a_shell(program: str, error: OSError) -> int:
    """127 for a command that is not there, 126 for one that cannot be executed."""
    print(f"aliquot: {program}: {error.strerror}", file=sys.stderr)
    return 127 if isinstance(error, FileNotFoundError) else 126


def _check(options: argparse.Namespace, command: list[str]) -> None:
    if not command:
        raise UserError("no command to run; write it after --, as in `aliquot run ... -- python`")
    if options.name is not None and not _NAME.fullmatch(options.name):
        raise UserError(
            f"{options.name!r} is no name for a run; use letters, digits, dots, dashes and "
            "underscores, 63 at most"
        )
    if options.name is None and options.memory is None and options.compute is None:
        raise UserError("how much GPU memory? Say it like --memory 4Gi")
    if any((_CONTAINER / kind).exists() for kind in ("memory", "compute")):
        raise UserError("this container has limits of its own, and they cannot be divided again")
    if outer := os.environ.get(RUN_VARIABLE):
        raise UserError(f"already inside the run {Path(outer).name}, which cannot be divided again")
    if not shim.PRELOAD_LIBRARY.exists():
        raise OperationError(f"{shim.PRELOAD_LIBRARY} is missing; build it with `make native`")
    if re.search(r"[\s:]", str(shim.PRELOAD_LIBRARY)):
        raise OperationError(
            f"{shim.PRELOAD_LIBRARY} cannot be preloaded: the loader splits at spaces and colons"
        )


def _cap(size: str, gpu: gpus.Gpu) -> int:
    cap_bytes = parse_cap(size, gpu.memory_bytes)
    if cap_bytes > gpu.memory_bytes:
        raise UserError(f"{size} is more than GPU {gpu.index} has: {format_size(gpu.memory_bytes)}")
    return cap_bytes


def _create(
    folder: Path, name: str | None, caps: list[tuple[gpus.Gpu, int]], compute: Compute
) -> Run:
    if not caps:
        raise UserError(f"there is no run {name} to join; to make it, add --memory SIZE")
    return registry.create(folder, name, caps, compute)


def _join(
    folder: Path, name: str | None, chosen: list[gpus.Gpu], caps: list[tuple[gpus.Gpu, int]]
) -> Run | None:
    """The living run of this name. Joining never changes it: what is asked must be what it has."""
    found = next((run for run in registry.living_runs(folder) if run.id == name), None)
    if found is None:
        return None
    present = {device.uuid: device.limit_bytes for device in found.limits().devices}
    if chosen and {gpu.uuid for gpu in chosen} != set(present):
        has = ", ".join(str(index) for index in sorted(found.gpu_indices().values()))
        raise UserError(
            f"the run {name} has GPU {has}; join it without --gpu, or choose another --name"
        )
    for gpu, cap_bytes in caps:
        limit_bytes = present.get(gpu.uuid, cap_bytes)
        if limit_bytes != cap_bytes:
            has = "no cap" if limit_bytes is None else format_size(limit_bytes)
            raise UserError(
                f"the run {name} has {has} of GPU {gpu.index}, not {format_size(cap_bytes)}; "
                "join it without --memory, or choose another --name"
            )
    return found


def _environment(share: Run) -> dict[str, str]:
    preloads = [str(shim.PRELOAD_LIBRARY), os.environ.get("LD_PRELOAD", "")]
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(each for each in preloads if each),
        RUN_VARIABLE: str(share.folder),
    }


def _let_go_of_streams(keep: int) -> None:
    """They are the child's alone: whoever reads from it must see its end, not ours."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        if int(name) > 2 and int(name) != keep:
            try:
                os.close(int(name))
            except OSError:
                pass  # the listing's own
