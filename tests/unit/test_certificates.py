"""The webhook's certificates are made, renewed and replaced without a moment of mistrust."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from scheduler_ext.certificates import Lifetimes, Material
from scheduler_ext.certificates.material import MaterialError, renewed

HOSTS = ("aliquot-webhook.aliquot-system.svc", "aliquot-webhook.aliquot-system.svc.cluster.local")
BIRTH = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIMES = Lifetimes()


def make(now: datetime, before: Material | None = None, hosts: Any = HOSTS) -> Material:
    return renewed(before, hosts, now, LIFETIMES)


def trusts(trusting: Material, serving: Material, now: datetime) -> bool:
    """As the API server does it: a chain from the certificate to one of the bundle."""
    store = x509.verification.Store([each.certificate for each in trusting.authorities])
    verifier = x509.verification.PolicyBuilder().store(store).time(now)
    try:
        verifier.build_server_verifier(x509.DNSName(HOSTS[0])).verify(serving.certificate, [])
    except x509.verification.VerificationError:
        return False
    return True


def test_the_first_certificate_is_trusted_for_every_name_of_the_service():
    material = make(BIRTH)
    assert trusts(material, material, BIRTH)
    names = material.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert tuple(names.value.get_values_for_type(x509.DNSName)) == HOSTS
    assert not trusts(make(BIRTH), material, BIRTH)


def test_nothing_changes_while_nothing_is_due():
    material = make(BIRTH)
    for days in (0, 1, 59):
        assert make(BIRTH + timedelta(days=days), material) is not None
        assert make(BIRTH + timedelta(days=days), material) == material


def test_the_certificate_is_renewed_before_its_end_by_the_same_authority():
    material = make(BIRTH)
    later = make(BIRTH + timedelta(days=61), material)
    assert later.certificate != material.certificate
    assert later.authorities == material.authorities
    assert later.certificate.not_valid_after_utc > BIRTH + timedelta(days=150)


def test_other_names_need_another_certificate():
    material = make(BIRTH)
    assert make(BIRTH, material, ("other.svc",)).certificate != material.certificate
    # Their order means nothing.
    assert make(BIRTH, material, tuple(reversed(HOSTS))) == material


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_until_it_ends():
    due = BIRTH + timedelta(days=551)
    before = make(due - timedelta(days=2), make(BIRTH))
    assert len(before.authorities) == 1
    during = make(due, before)
    assert len(during.authorities) == 2
    assert during.certificate == before.certificate
    after = make(due + timedelta(hours=2), during)
    assert after.certificate != before.certificate
    # Whoever has read the older bundle still trusts what is served until it settles, and whoever
    # has read the newer one trusts both.
    assert trusts(before, during, due)
    assert trusts(during, after, due + timedelta(hours=2))
    assert trusts(after, before, due + timedelta(hours=2))
    assert [each.key is not None for each in after.authorities] == [False, True]
    end = BIRTH + timedelta(days=731)
    assert len(make(end, after).authorities) == 1


def test_over_ten_years_each_step_is_trusted_by_the_step_before_and_after():
    now, material = BIRTH, make(BIRTH)
    authorities = {each.certificate for each in material.authorities}
    while now < BIRTH + timedelta(days=3650):
        now += timedelta(days=3)
        later = make(now, material)
        assert trusts(material, later, now)
        assert trusts(later, material, now)
        authorities |= {each.certificate for each in later.authorities}
        material = later
    assert 6 <= len(authorities) <= 8


def test_what_is_stored_is_read_back_the_same():
    material = make(BIRTH + timedelta(days=600), make(BIRTH))
    read = Material.decode(material.encode())
    assert read.encode() == material.encode()
    assert make(BIRTH + timedelta(days=600), read) == read


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_what_was_tampered_with_is_not_used(name):
    data = make(BIRTH).encode()
    with pytest.raises(MaterialError):
        Material.decode({key: pem for key, pem in data.items() if key != name})
    if name != "ca.key":
        with pytest.raises(MaterialError):
            Material.decode({**data, name: b"-----BEGIN NONSENSE-----"})
    with pytest.raises(MaterialError):
        Material.decode({**data, "tls.key": make(BIRTH).encode()["tls.key"]})


def test_lifetimes_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="must outlive"):
        Lifetimes(serving=timedelta(days=200))
    with pytest.raises(ValueError, match="longer than its reserve"):
        Lifetimes(authority=timedelta(days=100))
