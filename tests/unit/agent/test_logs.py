import json
import logging
import subprocess
import sys

PROGRAM = """
import logging
from aliquot import logs

logs.configure({form!r}, "info")
log = logging.getLogger("deviceplugin.test")
log.debug("too quiet")
log.info("took %d ids", 3, extra={{"gpu": "GPU-1"}})
try:
    raise ValueError("no")
except ValueError:
    log.exception("failed")
"""


def lines_of(form: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(form=form)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert run.stdout == ""
    return run.stderr.splitlines()


def test_text_has_one_line_for_each_event():
    first, second, *trace = lines_of("text")
    assert first.endswith(" INFO deviceplugin.test: took 3 ids gpu=GPU-1")
    assert second.endswith(" ERROR deviceplugin.test: failed")
    assert trace[-1] == "ValueError: no"


def test_json_can_be_read_line_by_line():
    first, second = (json.loads(line) for line in lines_of("json"))
    assert first["message"] == "took 3 ids"
    assert (first["level"], first["gpu"]) == ("info", "GPU-1")
    assert second["exception"].endswith("ValueError: no")
    assert logging.getLogger("deviceplugin").level == logging.NOTSET
