"""`aliquot extender`: the scheduler extender and admission webhook as a command."""

import argparse
import logging
import signal
import threading

from aliquot import logs
from scheduler_ext.settings import add_options, load
from scheduler_ext.turns import give_way

LINGER_S = 5.0
"""How long after SIGTERM the webhook's Service may still lead to us; the pod's grace is longer."""
HELP = "the scheduler extender: picks node and GPU for pods, and admits them"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Answers kube-scheduler (filter, prioritize, preempt, bind) and the API server's admission "
        "webhook. Runs until SIGTERM."
    )
    parser.epilog = (
        "Every setting can also come from the environment (ALIQUOT_LISTEN for --listen) or from "
        "the file of --config; docs/extender.md has them all."
    )
    add_options(parser)


def run(options: argparse.Namespace) -> int:
    settings = load(vars(options))
    logs.configure(settings.log_format, "debug" if options.verbose else settings.log_level)
    from aliquot.kubernetes.client import connect
    from scheduler_ext.extender import Extender

    give_way()
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    client = connect(settings.kubeconfig)
    extender = Extender(settings, client)
    extender.start()
    logging.getLogger(__name__).info("listening on port %d", extender.port)
    if extender.dashboard_port:
        logging.getLogger(__name__).info("dashboard on port %d", extender.dashboard_port)
    try:
        # A wait without an end would keep Python from running signal handlers on some platforms.
        while not ending.wait(3600):
            pass
    finally:
        extender.stop(LINGER_S)
        client.close()
    return 0
