"""When a GPU counts as usable, by what was seen of it."""

import pytest

from deviceplugin.gpus.condition import Condition
from deviceplugin.gpus.nvml import Vitals
from deviceplugin.gpus.xids import XIDS, Meaning, describe, meaning_of

WELL = Vitals(used_bytes=0, has_mig=False, recovery_action=0)
OLD_DRIVER = Vitals(used_bytes=0, has_mig=False, recovery_action=None)


@pytest.mark.parametrize("xid", [xid for xid, entry in XIDS.items() if entry[0] != Meaning.FATAL])
def test_errors_of_programs_leave_the_gpu_usable(xid: int) -> None:
    condition = Condition()
    condition.note_xid(xid, 0.0)
    assert condition.unusable == ""


@pytest.mark.parametrize("xid", [48, 79, 95, 109, 777])
def test_errors_of_the_hardware_and_unknown_ones_do_not(xid: int) -> None:
    condition = Condition()
    condition.note_xid(xid, 0.0)
    assert condition.unusable == describe(xid)
    assert meaning_of(xid) is Meaning.FATAL


@pytest.mark.parametrize("vitals", [WELL, OLD_DRIVER])
def test_a_gpu_recovers_when_probes_have_passed_for_a_while(vitals: Vitals) -> None:
    condition = Condition(quiet_s=15)
    condition.note_xid(62, 100.0)
    condition.note_vitals(vitals, 114.9)
    assert condition.unusable.startswith("Xid 62")
    condition.note_vitals(vitals, 115.0)
    assert condition.unusable == ""


def test_another_fatal_error_starts_the_wait_anew() -> None:
    condition = Condition(quiet_s=15)
    condition.note_xid(62, 100.0)
    condition.note_xid(13, 105.0)
    condition.note_xid(64, 110.0)
    condition.note_vitals(WELL, 124.9)
    assert condition.unusable.startswith("Xid 64")
    condition.note_vitals(WELL, 125.0)
    assert condition.unusable == ""


def test_the_drivers_advice_outlasts_every_wait() -> None:
    condition = Condition(quiet_s=15)
    condition.note_xid(48, 0.0)
    condition.note_vitals(Vitals(0, False, recovery_action=1), 1e6)
    assert condition.unusable == (
        "Xid 48: an uncorrectable memory error; the driver asks for a reset of the GPU"
    )
    condition.note_vitals(WELL, 1e6 + 2)
    assert condition.unusable == ""


def test_advice_counts_also_when_the_xid_was_before_our_time() -> None:
    condition = Condition()
    condition.note_vitals(Vitals(0, False, recovery_action=2), 0.0)
    assert condition.unusable == "the driver asks for a reboot of the node"
    condition.note_vitals(Vitals(0, False, recovery_action=99), 0.0)
    assert condition.unusable == "the driver asks for action 99"


def test_silence_is_explained_by_the_xid_before_it() -> None:
    condition = Condition(quiet_s=0)
    condition.note_silence("GPU is lost")
    assert condition.unusable == "GPU is lost"
    condition.note_xid(79, 0.0)
    condition.note_silence("GPU is lost")
    assert condition.unusable == "Xid 79: the GPU has fallen off the bus"
    condition.note_vitals(WELL, 1.0)
    assert condition.unusable == ""


def test_a_gpu_that_is_switched_to_mig_cannot_be_shared() -> None:
    condition = Condition()
    condition.note_vitals(Vitals(0, True, 0), 0.0)
    assert "MIG" in condition.unusable
    condition.note_vitals(WELL, 1.0)
    assert condition.unusable == ""
