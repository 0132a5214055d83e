"""The `aliquot` command: finds the sub-command, runs it, turns errors into one line."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from aliquot.commands import COMMANDS, load
from aliquot.errors import OperationError, UserError

__all__ = ["main"]

DESCRIPTION = "Aliquot shares a GPU between containers, each with its own part of it."
EPILOG = """\
exit codes: 0 done, 1 failed, 2 asked for something impossible, 130 interrupted;
`aliquot run` and `aliquot sim run` pass on the exit code of their command."""


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        # Also while the command is imported and its options are read.
        return 130


def _run(words: list[str]) -> int:
    options = _parser(words).parse_args(words)
    logging.basicConfig(
        level=[logging.WARNING, logging.INFO, logging.DEBUG][min(options.verbose, 2)],
        format="%(levelname)s %(name)s: %(message)s",
    )
    try:
        return load(options.command).run(options)
    except UserError as error:
        return _fail(error, 2, options.verbose)
    except BrokenPipeError:
        # The reader of a pipe has left (`aliquot ps | head`): not worth a word, but Python would
        # complain once more when it closes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OperationError, OSError) as error:
        return _fail(error, 1, options.verbose)


def _fail(error: Exception, code: int, verbose: int) -> int:
    if verbose > 1:
        logging.getLogger("aliquot").debug("where it came from", exc_info=error)
    print(f"aliquot: {error}", file=sys.stderr)
    return code


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Only the command that is asked for is imported; all of them for the list of commands."""
    parser = argparse.ArgumentParser(
        prog="aliquot",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_verbose(parser, default=0)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = next((word for word in words if not word.startswith("-")), None)
    for name in [named] if named in COMMANDS else COMMANDS:
        command = load(name)
        sub = commands.add_parser(
            name, help=command.HELP, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.configure(sub)
        # Also after the command, where people put it; SUPPRESS keeps a count given before it.
        _add_verbose(sub, default=argparse.SUPPRESS)
    return parser


def _add_verbose(parser: argparse.ArgumentParser, *, default: int | str) -> None:
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=default,
        help="say more on standard error; twice for everything",
    )


if __name__ == "__main__":
    sys.exit(main())
