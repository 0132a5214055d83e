from pathlib import Path

import pytest

from aliquot.errors import UserError
from deviceplugin.settings import ROWS, Settings, agent_url, load, markdown_table

MIB = 1 << 20


def from_file(folder: Path, text: str, **environment: str) -> Settings:
    path = folder / "agent.toml"
    path.write_text(text)
    return load({"config": str(path)}, environment)


def test_without_anything_set_the_defaults_hold():
    settings = load({}, {})
    assert settings.memory_unit_bytes == 256 * MIB
    assert settings.kubelet_dir == Path("/var/lib/kubelet")
    assert settings.gpus == ()
    assert settings.listen == ("", 9410)
    assert settings.node_name


def test_a_flag_counts_before_the_environment_and_that_before_the_file(tmp_path: Path):
    path = tmp_path / "agent.toml"
    path.write_text('memory-unit = "1Gi"\ncompute-percent = 150\ndefault-policy = "fixed"\n')
    environment = {"ALIQUOT_MEMORY_UNIT": "512Mi", "ALIQUOT_COMPUTE_PERCENT": "200"}
    options = {"config": str(path), "memory_unit_bytes": "128Mi"}
    settings = load(options, environment)
    assert settings.memory_unit_bytes == 128 * MIB
    assert settings.compute_percent == 200
    assert settings.default_policy == "fixed"


def test_the_config_file_can_come_from_the_environment(tmp_path: Path):
    path = tmp_path / "agent.toml"
    path.write_text('log-format = "json"\n')
    assert load({}, {"ALIQUOT_CONFIG": str(path)}).log_format == "json"


def test_a_list_in_the_file_is_a_list(tmp_path: Path):
    assert from_file(tmp_path, 'gpus = [0, "GPU-1"]').gpus == ("0", "GPU-1")


def test_one_file_can_serve_nodes_that_differ(tmp_path: Path):
    text = """
        memory-unit = "256Mi"
        [node."small-*"]
        memory-unit = "128Mi"
        [node."small-7"]
        gpus-left = [1]
    """
    assert from_file(tmp_path, text, ALIQUOT_NODE_NAME="big-1").memory_unit_bytes == 256 * MIB
    assert from_file(tmp_path, text, ALIQUOT_NODE_NAME="small-1").memory_unit_bytes == 128 * MIB
    seventh = from_file(tmp_path, text, ALIQUOT_NODE_NAME="small-7")
    assert (seventh.memory_unit_bytes, seventh.gpus_left) == (128 * MIB, ("1",))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '\nmemory-unti = "1Gi"',
            r"line 2: there is no setting memory-unti; did you mean memory-un",
        ),
        ('gpus = "0"\ncolour = "red"', "line 2: there is no setting colour; there are node-name,"),
        ('memory-unit = "x"', "line 1: memory-unit: 'x' is not a size"),
        ('memory-unit = "1000"', "line 1: memory-unit: 1000 is no whole number of Mi"),
        ("# first\n\ncompute-percent = 50", "line 3: compute-percent: '50' is not a whole number"),
        ("listen = true", "line 1: listen: True is neither a text"),
        ("gpus = = 1", r"line 1"),
        ('[node."a"]\ngpsu = 1', "line 2: there is no setting gpsu; did you mean gpus"),
        ("node = 3", r'line 1: write settings of one node below \[node."NAME"\]'),
        ('default-policy = "bursty"', "line 1: default-policy: 'bursty' is none of fixed, burst"),
        ('listen = "9410"', "line 1: listen: '9410' is no address"),
        ('gpus = "0"\ngpus = "1"', r'at line 2, column \d+\): gpus = "1"'),
        ('gpus = "0"\ngpus = "1"\nbreach = "evict"', r'at line 2, column \d+\): gpus = "1"'),
        ('\nnode = {"a" = {lissten = "off"}}', "line 2: there is no setting lissten; did you mean"),
        ('\nnode.a.lissten = "off"', "line 2: there is no setting lissten; did you mean listen"),
        ('\n[[node]]\nlisten="off"', r"line 2: write settings of one node below \[node"),
        ('listen = ":1"\n[node."*"]\n"listen" = 3.5', "line 3: listen: '3.5' is no address"),
        ("x = " + "[" * 3000, "is nested too deeply to be read"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(tmp_path: Path, text: str, complaint: str):
    with pytest.raises(UserError, match=complaint):
        from_file(tmp_path, text)


def test_a_mistake_elsewhere_is_named_with_its_origin():
    with pytest.raises(UserError, match=r"ALIQUOT_BREACH: 'explode' is none of report, evict"):
        load({}, {"ALIQUOT_BREACH": "explode"})
    with pytest.raises(UserError, match=r"--memory-unit: 10% is a percentage"):
        load({"memory_unit_bytes": "10%"}, {})


@pytest.mark.parametrize("name", ["state-dir", "kubelet-dir", "host-dir"])
@pytest.mark.parametrize("text", ["", ".", "state", "../lib", "/tmp/a\0b"])
def test_folders_have_absolute_paths(name: str, text: str):
    """`--uninstall` must not depend on where it is typed."""
    row = next(row for row in ROWS if row.name == name)
    with pytest.raises(UserError, match=rf"{row.variable}: .* is no (absolute )?path"):
        load({}, {row.variable: text})


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("listen", ":\u00b2", "is no address; write it like :9443"),
        ("listen", ":" + "9" * 5000, "is no address; write it like :9443"),
        ("compute-percent", "9" * 5000, r"'9{77}\.\.\.' is not a whole number from 100 to 1000"),
        ("compute-percent", "\u0661\u0662\u0663", "is not a whole number from 100 to 1000"),
        ("sim-state", "/tmp/a\0b", "is no path; it has a zero byte in it"),
    ],
)
def test_absurd_values_are_refused_in_a_line(name: str, text: str, complaint: str):
    row = next(row for row in ROWS if row.name == name)
    with pytest.raises(UserError, match=complaint) as refused:
        load({}, {row.variable: text})
    assert len(str(refused.value)) < 250


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path):
    with pytest.raises(UserError, match=r"cannot read the config file .*missing\.toml"):
        load({"config": str(tmp_path / "missing.toml")}, {})


def test_every_field_has_its_row_and_every_row_its_field():
    assert [row.attribute for row in ROWS] == list(Settings.__dataclass_fields__)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_readme_has_the_table_as_it_is():
    readme = Path(__file__).parents[3] / "README.md"
    assert markdown_table() in readme.read_text()


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, ""),
        ({"POD_IP": "10.1.2.3"}, "http://10.1.2.3:9999"),
        ({"POD_IP": "fd00::7"}, "http://[fd00::7]:9999"),
        ({"POD_IP": "10.1.2.3", "ALIQUOT_ADVERTISE_URL": "https://n1/agent/"}, "https://n1/agent"),
        ({"POD_IP": "10.1.2.3", "ALIQUOT_LISTEN": "0.0.0.0:0"}, "http://10.1.2.3:9999"),
        ({"POD_IP": "10.1.2.3", "ALIQUOT_LISTEN": "127.0.0.1:0"}, ""),
        ({"POD_IP": "10.1.2.3", "ALIQUOT_LISTEN": "[::1]:0"}, ""),
        ({"POD_IP": "127.0.0.1", "ALIQUOT_LISTEN": "127.0.0.1:0"}, "http://127.0.0.1:9999"),
        ({"POD_IP": "10.1.2.3", "ALIQUOT_LISTEN": "off"}, ""),
    ],
)
def test_the_cluster_is_told_where_the_agent_answers(environment: dict[str, str], url: str):
    assert agent_url(load({}, environment), 9999) == url


def test_what_is_no_address_is_not_advertised():
    with pytest.raises(UserError, match=r"ALIQUOT_ADVERTISE_URL: 'n1' is neither an address"):
        load({}, {"ALIQUOT_ADVERTISE_URL": "n1"})
