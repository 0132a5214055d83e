"""Flags, environment and file of `aliquot extender`, and what its documentation says of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aliquot.errors import UserError
from scheduler_ext.settings import ROWS, load, markdown_table

ROOT = Path(__file__).parents[3]


def test_a_flag_counts_before_the_environment_and_that_before_the_file(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('placement = "pack"\nassume-seconds = 7\nlisten = ":1"\n')
    environment = {
        "ALIQUOT_CONFIG": str(file),
        "ALIQUOT_PLACEMENT": "spread",
        "ALIQUOT_LISTEN": ":2",
        "POD_NAME": "me",
    }
    settings = load({"listen": "127.0.0.1:3"}, environment)
    assert settings.listen == ("127.0.0.1", 3)
    assert settings.placement == "spread"
    assert settings.assume_s == 7
    assert settings.pod_name == "me"
    assert settings.unit_mib == 256


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"placement": "best"}, "--placement: 'best' is none of pack, spread, fragmentation"),
        ({"unit_mib": "1000"}, "--memory-unit: 1000 is no whole number of Mi"),
        ({"listen": "9443"}, "--listen: '9443' is no address"),
        ({"assume_s": "soon"}, "--assume-seconds: 'soon' is not a number of seconds"),
        ({"default_compute_percent": "0"}, "--default-compute: '0' is not a whole number"),
    ],
)
def test_a_wrong_value_is_named_with_its_origin(options, text):
    with pytest.raises(UserError, match=re.escape(text)):
        load(options, {})


def test_an_unknown_setting_in_the_file_is_named(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('placment = "pack"\n')
    with pytest.raises(UserError, match="there is no setting placment; did you mean placement"):
        load({"config": str(file)}, {})


def test_the_documentation_has_the_table():
    text = (ROOT / "docs" / "extender.md").read_text()
    assert markdown_table() in text
    for row in ROWS:
        assert f"`{row.flag} {row.shows}`" in text


def test_the_command_explains_itself():
    done = subprocess.run(
        [sys.executable, "-m", "aliquot.cli", "extender", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for row in ROWS:
        assert row.flag in done.stdout
