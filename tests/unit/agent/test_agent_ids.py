import pytest

from deviceplugin.booking import ids
from deviceplugin.booking.ledger import Ledger
from deviceplugin.booking.sharing import MIB, Sharing
from deviceplugin.booking.supply import Supply
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.kubelet.proto import device_plugin_pb2 as api
from tests.unit.agent.agent_node import COMPUTE, MEMORY, gpu, uuid

GIB = 1 << 30


def test_an_id_says_its_gpu_and_number() -> None:
    assert ids.parse(MEMORY, f"m-{uuid(7)}-12") == (uuid(7), 12)
    assert ids.ids_of(COMPUTE, uuid(7), 2) == (f"c-{uuid(7)}-0", f"c-{uuid(7)}-1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m-",
        f"m-{uuid(1)}",
        f"m-{uuid(1)}-",
        f"m-{uuid(1)}-01",
        f"m-{uuid(1)}--1",
        f"m-{uuid(1)}-1 ",
        f"m-{uuid(1)}-12345678",
        f"x-{uuid(1)}-1",
        f"m-{uuid(255).upper()}-1",
        "m-MIG-1-1",
        f"m-{uuid(1)}-\u0661",
        "m-" + "9" * 5000,
    ],
)
def test_what_is_no_id_is_quoted_and_refused(text: str) -> None:
    with pytest.raises(ids.IdError, match="is no id of"):
        ids.parse(MEMORY, text)


def test_an_id_of_the_other_resource_is_refused() -> None:
    with pytest.raises(ids.IdError, match=f"is an id of {COMPUTE}"):
        ids.parse(MEMORY, f"c-{uuid(1)}-1")


def test_only_whole_units_beyond_what_is_kept_back_are_handed_out() -> None:
    assert ids.memory_units(80 * GIB, 0, 256 * MIB) == 320
    assert ids.memory_units(80 * GIB - 1, 0, 256 * MIB) == 319
    assert ids.memory_units(80 * GIB, GIB, 256 * MIB) == 316
    assert ids.memory_units(GIB, 2 * GIB, 256 * MIB) == 0


def test_the_size_of_the_list_is_known_to_the_byte() -> None:
    supply = Supply(Sharing(unit_bytes=MIB), Hardware((gpu(0, 44), gpu(1, 3))))
    devices = Ledger().devices(supply, MEMORY)
    message = api.ListAndWatchResponse(
        devices=[api.Device(ID=each, health="Unhealthy") for each, _ in devices]
    )
    assert len(devices) == 47 * 256
    assert message.ByteSize() == sum(ids.list_bytes(count * 256) for count in (44, 3))


def test_a_unit_that_makes_the_list_too_long_is_refused_with_one_that_works() -> None:
    memory = [288 * GIB] * 16
    ids.check_message(memory, 0, 256 * MIB)
    with pytest.raises(ValueError, match="32 MiB") as refusal:
        ids.check_message(memory, 0, 32 * MIB)
    smallest = int(str(refusal.value).rpartition(" is ")[2].removesuffix(" MiB"))
    ids.check_message(memory, 0, smallest * MIB)
    with pytest.raises(ValueError, match="smallest unit"):
        ids.check_message(memory, 0, (smallest - 1) * MIB)
