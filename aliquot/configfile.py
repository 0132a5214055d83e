"""The config file of our programs: TOML, in which every mistake is named with its line."""

import difflib
import fnmatch
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aliquot.errors import UserError

__all__ = ["ConfigFile"]

NODE_TABLE = "node"
"""`[node."gpu-*"]`: settings for the nodes of these names only."""


class ConfigFile:
    def __init__(self, path: Path, names: Sequence[str]) -> None:
        """`names` are the settings that there are."""
        self._path = path
        self._names = names
        try:
            self._lines = path.read_text().splitlines()
            # With a last line that ends, its mistakes have a place, too.
            self._data = tomllib.loads("\n".join([*self._lines, ""]))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the config file {path}: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{path}: {error}{self._quoted(str(error))}") from None
        except RecursionError:
            raise UserError(f"{path} is nested too deeply to be read") from None

    def texts(self, node_name: str | None) -> dict[str, tuple[str, str]]:
        """Texts, and where they stand, by the names of settings, as they are for this node; None
        for programs that run on no node in particular."""
        if node_name is None:
            return self._section(self._data, 0)
        general = {name: value for name, value in self._data.items() if name != NODE_TABLE}
        texts = self._section(general, 0)
        nodes = self._data.get(NODE_TABLE, {})
        for pattern, section in nodes.items() if isinstance(nodes, dict) else [("", None)]:
            if not isinstance(section, dict):
                raise UserError(
                    f"{self._place(NODE_TABLE, 0)}: write settings of one node below "
                    f'[{NODE_TABLE}."NAME"]'
                )
            head = rf"\s*\[\s*{NODE_TABLE}\s*\.[\s\"']*{re.escape(pattern)}"
            own = self._section(section, self._line(head, 0))
            if fnmatch.fnmatchcase(node_name, pattern):
                texts |= own
        return texts

    def _section(self, section: dict[str, Any], start: int) -> dict[str, tuple[str, str]]:
        texts = {}
        for name, value in section.items():
            place = self._place(name, start)
            if name not in self._names:
                near = difflib.get_close_matches(name, self._names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._names)}"
                raise UserError(f"{place}: there is no setting {name}; {hint}")
            texts[name] = _text(value, f"{place}: {name}"), f"{place}: {name}"
        return texts

    def _place(self, name: str, start: int) -> str:
        """Where a key stands below the line `start`: at the begin of a line, or in the midst of one
        that has dots or braces."""
        key = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
        line = self._line(rf"[\s\[\"']*{key}", start) or self._line(rf"[^#]*{key}", start)
        return f"{self._path}, line {line}" if line else str(self._path)

    def _line(self, pattern: str, start: int) -> int:
        """The number of the first line after `start` that begins like this; 0 if there is none."""
        for number, line in enumerate(self._lines, start=1):
            if number > start and re.match(pattern, line):
                return number
        return 0

    def _quoted(self, complaint: str) -> str:
        """The line of which the parser complains: it does not always name the key."""
        found = re.search(r"at line (\d+)", complaint)
        number = int(found[1]) if found else 0
        return f": {self._lines[number - 1].strip()}" if 0 < number <= len(self._lines) else ""


def _text(value: object, origin: str) -> str:
    """As it would be written in a flag."""
    if isinstance(value, list):
        return ",".join(_text(each, origin) for each in value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{origin}: {value!r} is neither a text, a number nor a list of them")
    return str(value)
