"""A Service leads API servers only to replicas whose webhook answers, first and last."""

import http.client
import ssl
import threading

from aliquot.kubernetes.lease import LeaseTimes
from scheduler_ext.extender import Extender
from scheduler_ext.settings import load
from simcluster.apiserver import pod
from tests.extender_cluster import gpu_node

TIMES = LeaseTimes(lease_s=60.0, renew_s=40.0, retry_s=0.2)


def _tls_line(port: int) -> http.client.HTTPSConnection:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)


def _status(line: http.client.HTTPSConnection) -> tuple[int, str | None]:
    """Of a review that is none: answered by the webhook itself; and what becomes of the line."""
    line.request("POST", "/mutate", "{}")
    answer = line.getresponse()
    answer.read()
    return answer.status, answer.getheader("Connection")


def test_a_replica_without_a_certificate_is_not_ready(server, start, connect):
    server.add(gpu_node("n1"))
    gate = server.hold(method="GET", path="secrets")
    extender = start(ready=False, listen_tls="127.0.0.1:0")
    server.wait_for(lambda: "webhook" in extender.not_ready())
    status, answer = connect(extender).call("GET", "/readyz")
    assert (status, answer["error"]) == (503, "the webhook has no certificate yet")
    assert extender.tls_port is None
    gate.open()
    server.wait_for(lambda: connect(extender).call("GET", "/readyz")[0] == 200)
    assert extender.tls_port


def test_a_replica_that_leaves_answers_the_webhook_while_another_leads_already(server):
    server.add(gpu_node("n1"))
    replicas = []
    for name in ("one", "two"):
        server.add(pod(name, "aliquot-system"))
        options = {"listen": "127.0.0.1:0", "listen_tls": "127.0.0.1:0", "dashboard": "off"}
        options["pod_name"] = name
        replicas.append(Extender(load(options, {}), server.client(), lease_times=TIMES))
    leaving, staying = replicas
    end = threading.Thread(target=leaving.stop, args=(600.0,))
    try:
        leaving.start()
        server.wait_for(lambda: not leaving.not_ready(leading=True))
        staying.start()
        server.wait_for(lambda: not staying.not_ready())
        kept = _tls_line(leaving.tls_port)
        assert _status(kept) == (400, "keep-alive")
        end.start()
        # Far sooner than its lease would lapse.
        server.wait_for(lambda: staying.leader.leads)
        fresh = _tls_line(leaving.tls_port)
        # Whoever calls again is to find somebody else.
        server.wait_for(lambda: _status(_tls_line(leaving.tls_port)) == (400, "close"))
        assert _status(kept) == (400, "close")
        assert _status(fresh) == (400, "close")
        assert end.is_alive()
    finally:
        for replica in replicas:
            replica.stop()
        end.join(60)
