"""`aliquot version`: what is installed, for a bug report."""

import platform
from argparse import ArgumentParser, Namespace

import aliquot

HELP = "print the version of Aliquot, Python and the C library"


def configure(parser: ArgumentParser) -> None:
    parser.description = HELP


def run(options: Namespace) -> int:
    libc, libc_version = platform.libc_ver()
    print(
        f"aliquot {aliquot.__version__}, Python {platform.python_version()}, "
        f"{libc or 'libc'} {libc_version or 'unknown'}, {platform.machine()}"
    )
    return 0
