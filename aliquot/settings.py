"""Settings of our programs: one table behind flags, environment, config file and docs."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot.configfile import ConfigFile
from aliquot.errors import UserError
from aliquot.sizes import parse_size

__all__ = [
    "Address",
    "Row",
    "add_options",
    "address",
    "folder",
    "load_values",
    "markdown_table",
    "mib",
    "one_of",
    "or_off",
    "path",
    "seconds",
    "size",
    "whole",
    "words",
]

VARIABLE_PREFIX = "ALIQUOT_"
CONFIG_VARIABLE = f"{VARIABLE_PREFIX}CONFIG"

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Row:
    attribute: str
    name: str
    shows: str
    """Stands for the value in help texts."""
    default: str
    read: Callable[[str], Any]
    meaning: str
    usual_variable: str = ""
    """Under which manifests usually tell a pod this about itself."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        return VARIABLE_PREFIX + self.name.replace("-", "_").upper()


def add_options(parser: argparse.ArgumentParser, rows: Sequence[Row]) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help=f"a TOML file with settings (also {CONFIG_VARIABLE})"
    )
    for row in rows:
        default = f" (default: {row.default})" if row.default else ""
        parser.add_argument(
            row.flag,
            dest=row.attribute,
            metavar=row.shows,
            help=row.meaning.replace("%", "%%") + default,
        )


def load_values(
    rows: Sequence[Row],
    options: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    *,
    node: Callable[[str], str] | None = None,
) -> dict[str, Any]:
    """By attribute. A flag counts before the environment, that before the file, that before the
    default. `node` answers this node's name, given what `node-name` says, for programs whose file
    may have settings of single nodes.
    """
    texts: dict[str, tuple[str, str]] = {}
    for row in rows:
        if options.get(row.attribute) is not None:
            texts[row.name] = options[row.attribute], row.flag
        elif row.variable in environment:
            texts[row.name] = environment[row.variable], row.variable
    if file_name := options.get("config") or environment.get(CONFIG_VARIABLE):
        file = ConfigFile(Path(file_name), [row.name for row in rows])
        node_name = node(texts.get("node-name", ("", ""))[0]) if node else None
        texts = {**file.texts(node_name), **texts}
    for row in rows:
        if row.usual_variable in environment:
            texts.setdefault(row.name, (environment[row.usual_variable], row.usual_variable))
    return {row.attribute: _value(row, texts.get(row.name)) for row in rows}


def _value(row: Row, given: tuple[str, str] | None) -> Any:
    text, origin = given or (row.default, row.flag)
    try:
        return row.read(text)
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None


def markdown_table(rows: Sequence[Row]) -> str:
    lines = ["| flag, and key in the file | environment | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{row.flag} {row.shows}` | `{row.variable}` "
        f"| {f'`{row.default}`' if row.default else ''} | {row.meaning} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


# --- how values are written ----------------------------------------------------------------------


def words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def path(text: str) -> Path | None:
    return Path(_whole_text(text)).absolute() if text else None


def folder(text: str) -> Path:
    """Not a relative one: whoever reads the setting elsewhere would mean another."""
    if not text.startswith("/"):
        raise UserError(f"{text!r} is no absolute path; write it like /var/lib/aliquot")
    return Path(_whole_text(text))


def _whole_text(text: str) -> str:
    if "\0" in text:
        raise UserError(f"{text!r} is no path; it has a zero byte in it")
    return text


def size(text: str) -> int:
    if "%" in text:
        raise UserError(f"{text} is a percentage; write a size like 256Mi")
    return parse_size(text, 0)


def mib(text: str) -> int:
    size_bytes = size(text)
    if size_bytes < 1 << 20 or size_bytes % (1 << 20):
        raise UserError(f"{text} is no whole number of Mi; write it like 256Mi")
    return size_bytes >> 20


def seconds(text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 < given <= 3600:
        raise UserError(f"{text!r} is not a number of seconds from 0 to 3600")
    return given


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = _number(text)
        if number is None or not least <= number <= most:
            raise UserError(f"{_short(text)} is not a whole number from {least} to {most}")
        return number

    return read


def one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise UserError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return read


def address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    number = _number(port)
    if not colon or number is None or number > 65535:
        raise UserError(f"{_short(text)} is no address; write it like :9443 or 127.0.0.1:9443")
    return host.strip("[]"), number


def or_off(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """What `read` reads, or None for `off`."""
    return lambda text: None if text == "off" else read(text)


def _number(text: str) -> int | None:
    """Python reads more digits than others do, and refuses thousands of them in its own way."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
