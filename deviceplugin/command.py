"""`aliquot plugin`: the node agent as a command, what it would advertise, and its removal."""

import argparse
import logging
import signal
import sys
import threading

from aliquot import logs
from aliquot.errors import OperationError, UserError
from deviceplugin.settings import Settings, add_options, check_simulation, load

HELP = "the node agent: shares this node's GPUs between pods (a kubelet device plugin)"


def configure(parser: argparse.ArgumentParser) -> None:
    # An abbreviation that means one setting today could mean another tomorrow.
    parser.allow_abbrev = False
    parser.description = (
        "Finds this node's GPUs, advertises their memory and compute to the kubelet, and gives "
        "each container its part. Runs until SIGTERM."
    )
    parser.epilog = (
        "Every setting can also come from the environment (ALIQUOT_MEMORY_UNIT for --memory-unit) "
        "or from the file of --config; docs/agent.md has them all."
    )
    actions = parser.add_mutually_exclusive_group()
    actions.add_argument("--dry-run", action="store_true", help="only say what would be advertised")
    actions.add_argument(
        "--uninstall",
        action="store_true",
        help="remove what the agent has put on this node, unless containers still use it",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="with --uninstall: wait until the agent has ended and nobody uses anything of it",
    )
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    if options.wait and not options.uninstall:
        raise UserError("--wait goes with --uninstall only")
    settings = load(vars(options))
    if options.verbose:
        logs.configure(settings.log_format, "debug")
    else:
        logs.configure(settings.log_format, settings.log_level)
    if not options.uninstall:
        check_simulation(settings)
    if options.dry_run:
        from deviceplugin.dryrun import describe

        print(describe(settings), end="")
        return 0
    if options.uninstall:
        from deviceplugin.uninstall import uninstall, uninstall_when_free

        print(uninstall_when_free(settings) if options.wait else uninstall(settings), end="")
        return 0
    return _serve(settings)


def _serve(settings: Settings) -> int:
    from deviceplugin.agent import Agent
    from deviceplugin.thrift import limit_heaps, settle

    limit_heaps()
    # The kubelet waits for our answers; whoever counts or compares meanwhile gives way sooner than
    # by default, which is 5 ms at each of a call's many waits for the interpreter: one after every
    # system call.
    sys.setswitchinterval(0.0001)
    ending = ended_by_signal()
    agent = Agent(settings, ending)
    try:
        agent.start()
        settle()
        ending.wait()
    except OperationError as error:
        logging.getLogger(__name__).error("%s", error)
        raise
    finally:
        agent.stop()
    return 0


def ended_by_signal() -> threading.Event:
    """Set by SIGTERM or SIGINT. Not in a handler, which runs in the midst of whatever the main
    thread does: if that is about to wait for this very event, each would wait for the other."""
    numbers = {signal.SIGTERM, signal.SIGINT}
    ending = threading.Event()

    def wait() -> None:
        signal.sigwait(numbers)
        ending.set()

    # Threads that come later block them as well.
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    threading.Thread(target=wait, name="signals", daemon=True).start()
    return ending
