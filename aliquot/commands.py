"""The table of sub-commands: which module of which part answers to which name."""

import importlib
from argparse import ArgumentParser, Namespace
from typing import Protocol, cast

__all__ = ["COMMANDS", "Command", "load"]


class Command(Protocol):
    """What a part's command module offers."""

    HELP: str
    """One line for the list of commands."""

    def configure(self, parser: ArgumentParser) -> None:
        """Adds the command's own options; a description belongs to them."""

    def run(self, options: Namespace) -> int:
        """Does the work and answers the exit code."""


# Names of modules, not imports: a command pays only for its own part, and `aliquot run` must start
# at once. A command appears here when it works, not before.
COMMANDS = {
    "run": "aliquot.run.run",
    "ps": "aliquot.run.ps",
    "top": "aliquot.top.command",
    "resize": "aliquot.resize",
    "plugin": "deviceplugin.command",
    "extender": "scheduler_ext.command",
    "sim": "simgpu.command",
    "demo": "simcluster.demo.command",
    "explain": "aliquot.explain",
    "doctor": "aliquot.doctor.command",
    "version": "aliquot.version",
}


def load(name: str) -> Command:
    return cast("Command", importlib.import_module(COMMANDS[name]))
