"""What `aliquot doctor` makes of what it sees."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from aliquot.doctor.cluster import judge_bundle, judge_clock, judge_nodes
from aliquot.doctor.driver import Answer, judge_driver
from aliquot.doctor.finding import Finding, Level
from aliquot.doctor.image import judge_libc
from aliquot.kubernetes.objects import Node, NodeStatus, ObjectMeta
from aliquot.protocol import inventory, names
from aliquot.protocol.inventory import GpuRecord, NodeInventory

NOW = datetime(2030, 6, 1, tzinfo=UTC)


def levels(*findings: Finding) -> list[Level]:
    assert all(bool(each.advice) == (each.level in (Level.WARN, Level.FAIL)) for each in findings)
    return [finding.level for finding in findings]


def test_a_working_driver_is_good() -> None:
    answer = Answer(cuda_version=13010, cuda_gpus=2, driver="580.1", nvml_gpus=2)
    cuda, nvml = judge_driver(answer)
    assert levels(cuda, nvml) == [Level.GOOD, Level.GOOD]
    assert "CUDA 13.1, 2 GPUs" in cuda.text
    assert "driver 580.1" in nvml.text


@pytest.mark.parametrize(
    "answer",
    [
        Answer(cuda_missing="no such file", driver="580.1", nvml_gpus=1),
        Answer(cuda_code=100, driver="580.1", nvml_gpus=1),
        Answer(cuda_gpus=1, nvml_missing="not found"),
    ],
)
def test_half_a_driver_is_a_failure(answer: Answer) -> None:
    assert sorted(level.value for level in levels(*judge_driver(answer))) == ["failure", "ok"]


def test_gpus_that_only_one_of_both_sees_are_a_warning() -> None:
    assert levels(*judge_driver(Answer(cuda_gpus=1, nvml_gpus=2)))[-1] is Level.WARN


@pytest.mark.parametrize(
    ("name", "version", "level"),
    [
        ("glibc", "2.31", Level.GOOD),
        ("glibc", "2.36", Level.GOOD),
        ("glibc", "3.0", Level.GOOD),
        ("glibc", "2.17", Level.WARN),
        ("", "", Level.FAIL),
    ],
)
def test_only_glibc_is_enforced_on(name: str, version: str, level: Level) -> None:
    assert levels(judge_libc(name, version)) == [level]


@pytest.mark.parametrize(
    ("ahead_s", "level"),
    [(0.4, Level.GOOD), (-1.9, Level.GOOD), (30, Level.WARN), (-30, Level.WARN)],
)
def test_clocks_that_differ_are_a_warning(ahead_s: float, level: Level) -> None:
    assert levels(judge_clock(ahead_s)) == [level]


def node(name: str, units: int, gpus: int = 1) -> Node:
    records = tuple(GpuRecord(f"GPU-{n}", n, "A100", 320) for n in range(gpus))
    report = inventory.encode(NodeInventory(records, 256))
    return Node(
        ObjectMeta(name=name, annotations={names.INVENTORY: report}),
        status=NodeStatus(allocatable={names.MEMORY_RESOURCE: str(units)}),
    )


def test_a_node_whose_agent_is_away_is_named() -> None:
    away, offer = judge_nodes([node("a", 320), node("b", 0), Node(ObjectMeta(name="c"))])
    assert levels(away, offer) == [Level.FAIL, Level.GOOD]
    assert "offered by b:" in away.text
    assert "1 of 3" in offer.text


def test_agents_on_nodes_without_gpus_are_no_failure() -> None:
    (offer,) = judge_nodes([node("a", 320), node("b", 0, gpus=0)])
    assert levels(offer) == [Level.GOOD]
    assert "1 of 2" in offer.text


def test_a_report_that_cannot_be_read_is_a_node_of_ours() -> None:
    broken = Node(ObjectMeta(name="a", annotations={names.INVENTORY: "{"}))
    away, _ = judge_nodes([broken])
    assert levels(away) == [Level.FAIL]


def test_a_cluster_without_shared_gpus_is_a_warning() -> None:
    assert levels(*judge_nodes([Node()])) == [Level.WARN]


def bundle(days: int) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=100))
        .not_valid_after(NOW + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode()


def test_the_webhooks_certificate_is_judged_by_its_end() -> None:
    assert levels(judge_bundle(bundle(90), NOW)) == [Level.GOOD]
    assert levels(judge_bundle(bundle(1), NOW)) == [Level.FAIL]
    assert levels(judge_bundle(bundle(-1), NOW)) == [Level.FAIL]


@pytest.mark.parametrize("text", ["", "Cg==", "not base64"])
def test_a_webhook_without_a_certificate_is_a_failure(text: str) -> None:
    assert levels(judge_bundle(text, NOW)) == [Level.FAIL]
