"""An account with a cap, and programs that book on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.account_programs import CAP, Account, Client, compile_program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("account")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return compile_program("client", folder)


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account.create(tmp_path / "run", CAP)


@pytest.fixture
def client(program: Path, account: Account) -> Iterator[Client]:
    with Client(program, account.env) as client:
        yield client


@pytest.fixture
def other(program: Path, account: Account) -> Iterator[Client]:
    with Client(program, account.env) as other:
        yield other
