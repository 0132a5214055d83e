"""The fast tests' API server is held against this one."""

from aliquot.kubernetes.client import connect
from tests.conformance import differences
from tests.e2e.cluster import Cluster


def test_the_stand_in_was_recorded_from_a_server_like_this(cluster: Cluster) -> None:
    client = connect(cluster.control_plane.admin)
    assert differences(client) == []
    client.close()
