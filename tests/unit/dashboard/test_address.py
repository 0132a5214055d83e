import pytest

from scheduler_ext.dashboard.address import AddressError, agent_address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://10.1.2.3:9400", "10.1.2.3:9400"),
        ("http://10.1.2.3:9400/", "10.1.2.3:9400"),
        ("http://192.168.0.9", "192.168.0.9:80"),
        ("http://[fd00::7]:9400", "[fd00::7]:9400"),
        ("http://127.0.0.1:9400", "127.0.0.1:9400"),
    ],
)
def test_an_agents_address_is_an_ip_and_a_port(url: str, shown: str) -> None:
    assert str(agent_address(url)) == shown


@pytest.mark.parametrize(
    "url",
    [
        "https://10.1.2.3:9400",
        "file:///etc/passwd",
        "http://metadata.internal:9400",
        "http://localhost:9400",
        "http://10.1.2.3:9400/admin",
        "http://10.1.2.3:9400/?x=1",
        "http://10.1.2.3:9400/#x",
        "http://user:secret@10.1.2.3:9400",
        "http://10.1.2.3:99999",
        "http://10.1.2.3:x",
        "http://169.254.169.254",
        "http://[::ffff:169.254.169.254]",
        "http://[fe80::1%25eth0]:9400",
        "http://0.0.0.0:9400",
        "http://[::]:9400",
        "http://224.0.0.1",
        "http://255.255.255.255",
        "http://0x7f000001",
        "http://[10.1.2.3",
        "10.1.2.3:9400",
        "",
        "\x00",
    ],
)
def test_nothing_else_is_asked_whatever_a_node_writes_there(url: str) -> None:
    with pytest.raises(AddressError):
        agent_address(url)
