"""The frame of the command: what a user meets before any part does its work."""

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from types import SimpleNamespace

import pytest

import aliquot
from aliquot import cli, commands
from aliquot.errors import OperationError, UserError


def command_that(action) -> SimpleNamespace:
    def configure(parser: ArgumentParser) -> None:
        parser.add_argument("--size")

    return SimpleNamespace(HELP="does what the test says", configure=configure, run=action)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch):
    def register(action) -> None:
        monkeypatch.setattr(cli, "COMMANDS", {"probe": "unused"})
        monkeypatch.setattr(cli, "load", lambda _name: command_that(action))

    return register


def raising(error: BaseException):
    def action(options: Namespace) -> int:
        raise error

    return action


def test_a_command_gets_its_options_and_answers_the_exit_code(registered) -> None:
    seen = []
    registered(lambda options: seen.append(options.size) or 7)
    assert cli.main(["probe", "--size", "4Gi"]) == 7
    assert seen == ["4Gi"]


def test_an_interrupt_while_a_command_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "load", raising(KeyboardInterrupt()))
    assert cli.main(["ps"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("no GPU 9; there are 0 and 1"), 2),
        (OperationError("the driver does not answer"), 1),
        (PermissionError(13, "Permission denied", "/etc/aliquot"), 1),
    ],
)
def test_an_error_is_one_line_without_a_traceback(
    registered, capsys: pytest.CaptureFixture[str], error: Exception, code: int
) -> None:
    registered(raising(error))
    assert cli.main(["probe"]) == code
    assert capsys.readouterr().err == f"aliquot: {error}\n"


def test_ctrl_c_is_no_error_text(registered, capsys: pytest.CaptureFixture[str]) -> None:
    registered(raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["-v", "probe"], ["probe", "-v"]])
def test_verbose_may_stand_before_or_after_the_command(registered, words: list[str]) -> None:
    seen = []
    registered(lambda options: seen.append(options.verbose) or 0)
    cli.main(words)
    assert seen == [1]


def test_an_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["explode"])
    assert stop.value.code == 2
    assert "version" in capsys.readouterr().err


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_helps(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: aliquot {name}")
    assert len(shown.splitlines()) > 4, "a help text that people can work from"


def test_a_command_imports_only_its_own_part() -> None:
    """`aliquot run` must start at once, so no other part may be pulled in."""
    script = "import sys\nfrom aliquot.cli import main\nmain(['version'])\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    version, modules = loaded.splitlines()
    assert version.startswith(f"aliquot {aliquot.__version__}, Python ")
    assert not {"rich", "numpy", "cffi", "simgpu", "shim", "pynvml"} & set(modules.split())


def test_a_reader_that_leaves_is_no_error(tmp_path) -> None:
    script = (
        "import sys\nfrom aliquot import cli\nfrom types import SimpleNamespace\n"
        "def run(options):\n"
        "    for number in range(100000): print('line', number)\n"
        "    return 0\n"
        "cli.COMMANDS = {'probe': ''}\n"
        "cli.load = lambda name: SimpleNamespace(HELP='', configure=lambda p: None, run=run)\n"
        "sys.exit(cli.main(['probe']))\n"
    )
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" | head -n 1', sys.executable, script],
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("line 0\n", "")
