"""Files damaged or truncated under running processes: caps hold, nobody hangs or dies."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.native.account_programs import (
    CAP,
    DEADLINE_S,
    HEADER_BYTES,
    Account,
    Client,
    owner_at,
    word_at,
    write_at,
)

# One worker compiles the programs, and uses them.
pytestmark = pytest.mark.xdist_group("ledger-damage")

# --- damage under running processes ------------------------------------------------------------


def test_a_process_repairs_its_own_word(client: Client, other: Client, account: Account) -> None:
    assert client.reserve(CAP - 10)
    for damage in (b"\0" * 8, b"\xff" * 8, b"\x01" + b"\0" * 7, b"damaged!"):
        write_at(account.usage(), word_at(0), damage)
        assert not client.reserve(11)
        assert client.reserve(1)
        client.release(1)
        assert client.used() == CAP - 10
    assert other.reserve(10)
    assert not other.reserve(1)


def test_another_ones_damaged_word_counts_as_full(
    client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(10)
    assert other.reserve(10)
    write_at(account.usage(), word_at(0), b"damaged!")
    assert not other.reserve(1)
    assert other.used() == CAP
    assert client.reserve(1)
    assert other.reserve(1)
    write_at(account.usage(), word_at(0), b"damaged!")
    client.kill()
    assert other.reserve(CAP - 11)
    assert not other.reserve(1)


def test_a_damaged_owner_is_never_taken_for_dead(
    client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(CAP)
    for damage in (b"\0" * 8, b"damaged!", b"\xff" * 8):
        write_at(account.usage(), owner_at(0), damage)
        assert not other.reserve(1)
        client.release(1)
        assert client.reserve(1)
        assert not other.reserve(1)


def test_a_slot_that_was_lost_is_claimed_again(
    client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(CAP - 1)
    free = (1).to_bytes(8, "little")
    write_at(account.usage(), owner_at(0), free)
    write_at(account.usage(), word_at(0), free)
    assert client.ask("held", 0) == CAP - 1
    client.release(1)
    assert not other.reserve(3)
    assert other.reserve(2)


def test_a_damaged_mark_only_costs_time(client: Client, other: Client, account: Account) -> None:
    assert client.reserve(CAP - 10)
    for damage in (b"\0" * 8, b"damaged!", b"\xff" * 8):
        write_at(account.usage(), 56, damage)
        assert not other.reserve(11)
        assert other.reserve(10)
        other.release(10)
        assert client.used() == CAP - 10


@pytest.mark.parametrize("seed", range(12))
def test_random_damage_never_raises_the_cap(
    program: Path, account: Account, tmp_path: Path, seed: int
) -> None:
    """One process holds half and sleeps; another never gets beyond the rest."""
    dice = random.Random(seed)
    size = account.usage().stat().st_size
    with Client(program, account.env) as sleeper, Client(program, account.env) as waker:
        assert sleeper.reserve(CAP // 2)
        assert waker.reserve(1)
        held = 1
        for _ in range(30):
            # Most of the file is never used: half of the damage goes where it hurts.
            start = dice.choice([0, HEADER_BYTES, owner_at(0), word_at(0), dice.randrange(size)])
            data = dice.choice([dice.randbytes(8), b"\0" * dice.randrange(1, 64), b"\xff"])
            write_at(account.usage(), start + dice.randrange(16), data[: size - start - 16])
            asked = dice.randrange(1, CAP // 4)
            if waker.reserve(asked):
                held += asked
            assert held <= CAP - CAP // 2
            if dice.random() < 0.3:
                waker.release(held - 1)
                held = 1
            waker.used()
        assert sleeper.ask("held", 0) == CAP // 2
        assert waker.ask("held", 0) == held
    assert (sleeper.code, waker.code) == (-9, -9)


@pytest.mark.parametrize("left", [0, 64, 4096, 10000])
def test_truncation_fails_closed(
    client: Client, other: Client, account: Account, left: int
) -> None:
    assert client.reserve(CAP // 2)
    assert other.reserve(1)
    os.truncate(account.usage(), left)
    for process in (client, other):
        assert not process.reserve(CAP - CAP // 2)
    for process in (client, other):
        process.release(1)
        process.ask("force", 0, 1)
        assert process.used() <= CAP
        assert process.leave().count("\n") <= 1
        assert process.code == 0


def test_truncation_and_growth_fail_closed(client: Client, other: Client, account: Account) -> None:
    size = account.usage().stat().st_size
    assert client.reserve(CAP // 2)
    assert other.reserve(1)
    os.truncate(account.usage(), 0)
    os.truncate(account.usage(), size)
    assert not other.reserve(CAP - CAP // 2)
    assert not client.reserve(CAP - CAP // 2)
    client.release(CAP // 2)
    assert client.ask("held", 0) == 0


def test_deletion_keeps_the_account_of_those_who_have_it(
    program: Path, client: Client, other: Client, account: Account
) -> None:
    assert client.reserve(CAP - 1)
    assert other.reserve(1)
    account.usage().unlink()
    assert not other.reserve(1)
    client.release(1)
    assert other.reserve(1)
    with Client(program, account.env) as late:
        assert late.ask("ready") == 0


@pytest.mark.parametrize("left", [0, 200])
def test_truncated_limits_leave_the_last_caps(client: Client, account: Account, left: int) -> None:
    assert client.reserve(1)
    os.truncate(account.limits(), left)
    assert client.ask("limit", 0) == CAP
    assert not client.reserve(CAP)
    assert client.reserve(CAP - 1)


def test_damaged_limits_leave_the_last_caps(client: Client, account: Account) -> None:
    assert client.reserve(1)
    size = account.limits().stat().st_size
    write_at(account.limits(), 128, random.Random(2).randbytes(size - 128))
    assert client.ask("limit", 0) == CAP
    assert not client.reserve(CAP)


# --- SIGBUS is the program's, too --------------------------------------------------------------


def test_the_programs_own_faults_stay_its_own(client: Client, account: Account) -> None:
    assert client.ask("handle-sigbus") == 1
    assert client.reserve(1)
    assert client.say("own-fault") == "1 0"
    os.truncate(account.usage(), 0)
    assert not client.reserve(1)
    assert client.say("own-fault") == "2 0"


def test_a_handler_that_came_later_is_passed_on_to(client: Client, account: Account) -> None:
    assert client.reserve(1)
    assert client.ask("handle-sigbus") == 1
    assert client.say("own-fault") == "1 0"
    assert not client.reserve(CAP + 1)  # the slow path, where the guard is put back
    os.truncate(account.usage(), 0)
    assert not client.reserve(1)
    assert client.say("own-fault") == "2 0"


def test_a_fault_that_nobody_handles_kills_as_ever(client: Client) -> None:
    assert client.reserve(1)
    client.order("own-fault")
    client.leave()
    assert client.code == -7


# --- words ---------------------------------------------------------------------------------


def test_a_refusal_is_logged_on_request(program: Path, account: Account) -> None:
    with Client(program, {**account.env, "ALIQUOT_LOG": "1"}) as client:
        assert client.reserve(3)
        assert not client.reserve(CAP)
        said = client.leave()
    assert said == (
        f"aliquot: refused {CAP} bytes on GPU 0: 3 of {CAP} in use, process {client.pid} (client)\n"
    )


@pytest.mark.parametrize("log", ["", "0", None])
def test_refusals_are_silent_otherwise(program: Path, account: Account, log: str | None) -> None:
    env = account.env if log is None else {**account.env, "ALIQUOT_LOG": log}
    with Client(program, env) as client:
        assert not client.reserve(CAP + 1)
        assert client.leave() == ""


# --- pid namespaces ----------------------------------------------------------------------------

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def test_a_process_of_another_pid_namespace_is_never_judged(
    program: Path, account: Account, client: Client
) -> None:
    try:
        permitted = subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=DEADLINE_S)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    if permitted.returncode != 0:
        pytest.skip("may not make a pid namespace here")
    with Client(program, account.env, *UNSHARE) as inner:
        assert inner.reserve(CAP)
        assert not client.reserve(1)
        inner.kill()
        # From here its inner pid names somebody else or nobody: only who sees the host can tell.
        assert not client.reserve(1)
    (process,) = [each for each in account.read().processes if each.held_bytes == (CAP,)]
    assert not process.is_gone()
