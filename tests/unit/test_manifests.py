"""What the manifests of deploy/ promise, read as they are written; `make check` renders them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm/aliquot"
INSTALL = (DEPLOY.parent / "docs/install.md").read_text()
CALLED = {"aliquot-extender": "scheduler", "aliquot-agent": "metrics"}
"""Ports whose callers docs/install.md lets choose."""
Object = dict[str, Any]


def objects(*patterns: str) -> Iterator[Object]:
    for pattern in patterns:
        for path in sorted(DEPLOY.glob(pattern)):
            yield from (each for each in yaml.safe_load_all(path.read_text()) if each)


def only(kind: str, name: str, *patterns: str) -> Object:
    [found] = [
        each
        for each in objects(*(patterns or ("base/*.yaml",)))
        if each.get("kind") == kind and each["metadata"]["name"] == name
    ]
    return found


def environment(workload: Object) -> dict[str, str | None]:
    [container] = workload["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container.get("env", ())}


def test_pods_get_the_runtime_class_that_the_agent_has_and_that_can_be_made() -> None:
    agent = only("DaemonSet", "aliquot-agent", "overlays/nvidia-runtime/agent.yaml")
    extender = only("Deployment", "aliquot-extender", "overlays/nvidia-runtime/extender.yaml")
    [made] = objects("runtime-class.yaml")
    name = made["metadata"]["name"]
    assert agent["spec"]["template"]["spec"]["runtimeClassName"] == name
    assert environment(extender)["ALIQUOT_RUNTIME_CLASS"] == name


def test_no_selector_takes_pods_of_others() -> None:
    """Selectors are immutable, and somebody else's pods may be `component: agent` as well."""
    found = list(_selectors(list(objects("base/*.yaml", "components/*/*.yaml"))))
    assert len(found) > 10
    for selector in found:
        assert selector["app.kubernetes.io/name"] == "aliquot", selector
        assert "app.kubernetes.io/component" in selector


def _selectors(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, list):
        for each in value:
            yield from _selectors(each)
    elif isinstance(value, dict):
        if value.get("kind") == "Service":
            yield value["spec"]["selector"]
        for key, each in value.items():
            if key == "matchLabels":
                yield each
            else:
                yield from _selectors(each)


def test_the_documented_callers_come_to_the_rule_that_they_are_meant_for() -> None:
    chapter = INSTALL.partition("## Who may call\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```yaml\n(.+?)^```$", chapter, re.MULTILINE | re.DOTALL)
    for patch in yaml.safe_load(block)["patches"]:
        policy = only("NetworkPolicy", patch["target"]["name"])
        [step] = yaml.safe_load(patch["patch"])
        _, _, _, number, *rest = step["path"].split("/")
        rule = policy["spec"]["ingress"][int(number)]
        # Without a list of callers everybody may call; a list can only become longer.
        assert ("from" in rule) == (rest == ["from", "-"])
        assert [each["port"] for each in rule["ports"]] == [CALLED[patch["target"]["name"]]]


def test_only_our_scheduler_reaches_the_verbs_and_nobody_the_page() -> None:
    rules = only("NetworkPolicy", "aliquot-extender")["spec"]["ingress"]
    reached = {port["port"]: rule.get("from") for rule in rules for port in rule["ports"]}
    assert reached.keys() == {"webhook", "scheduler"}
    [caller] = reached["scheduler"]
    scheduler = only("Deployment", "aliquot-scheduler")["spec"]["selector"]
    assert caller == {"podSelector": scheduler}


def test_policies_hold_in_whatever_namespace_the_account_is() -> None:
    """A namespace that an administrator overrides must not switch them off without a word."""
    found = [
        each
        for each in objects("base/*.yaml", "components/evict/policy.yaml")
        if each.get("kind") == "ValidatingAdmissionPolicy"
    ]
    assert len(found) == 3
    for policy in found:
        assert "aliquot-system" not in str(policy)
        [who] = policy["spec"]["matchConditions"]
        account = policy["metadata"]["name"].removesuffix("-evicts")
        assert f".endsWith(':{account}')" in who["expression"]
    bound = {
        each["spec"]["policyName"]
        for each in objects("base/*.yaml", "components/evict/policy.yaml")
        if each.get("kind") == "ValidatingAdmissionPolicyBinding"
    }
    assert bound == {each["metadata"]["name"] for each in found}


def test_nobody_may_create_secrets_or_write_what_no_program_writes() -> None:
    """What RBAC grants, right by right: a new one is to be thought about here, too."""
    granted = {
        (each["metadata"]["name"], resource, verb)
        for each in objects("base/*-rights.yaml")
        if each["kind"] in ("ClusterRole", "Role")
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    webhooks = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    assert granted == {
        *(("aliquot-agent", resource, "patch") for resource in ("nodes", "pods", "events")),
        ("aliquot-agent", "events", "create"),
        *(("aliquot-extender", resource, "patch") for resource in ("pods", "events")),
        *(("aliquot-extender", each, "create") for each in ("pods/binding", "events", "leases")),
        *(("aliquot-extender", each, "update") for each in ("leases", "secrets", *webhooks)),
        *(("aliquot-scheduler", "leases", verb) for verb in ("create", "update")),
    }
    assert only("Secret", "aliquot-webhook").get("data") is None


def test_nobody_may_read_more_than_it_looks_at() -> None:
    read = {
        (each["metadata"]["name"], resource, *rule.get("resourceNames", ()))
        for each in objects("base/*.yaml", "components/evict/*.yaml")
        if each.get("kind") in ("ClusterRole", "Role")
        for rule in each["rules"]
        for resource in rule["resources"]
        if {"get", "list", "watch", "*"} & {*rule["verbs"]}
    }
    webhooks = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    assert read == {
        *(("aliquot-agent", resource) for resource in ("nodes", "pods")),
        *(("aliquot-extender", each) for each in ("nodes", "pods", "poddisruptionbudgets")),
        *(("aliquot-extender", each, "aliquot") for each in webhooks),
        ("aliquot-extender", "leases", "aliquot-extender"),
        ("aliquot-extender", "secrets", "aliquot-webhook"),
        ("aliquot-scheduler", "leases", "aliquot-scheduler"),
    }


def test_no_role_is_given_but_our_own_and_those_of_every_scheduler() -> None:
    given = {
        (subject["name"], each["roleRef"]["kind"], each["roleRef"]["name"])
        for each in objects("base/*.yaml", "components/*/*.yaml", "uninstall/*.yaml")
        if each.get("kind") in ("ClusterRoleBinding", "RoleBinding")
        for subject in each["subjects"]
    }
    assert given == {
        ("aliquot-agent", "ClusterRole", "aliquot-agent"),
        ("aliquot-agent", "ClusterRole", "aliquot-agent-evicts"),
        *(("aliquot-extender", kind, "aliquot-extender") for kind in ("ClusterRole", "Role")),
        ("aliquot-scheduler", "Role", "aliquot-scheduler"),
        ("aliquot-scheduler", "ClusterRole", "system:kube-scheduler"),
        ("aliquot-scheduler", "ClusterRole", "system:volume-scheduler"),
        ("aliquot-scheduler", "Role", "extension-apiserver-authentication-reader"),
    }


def test_every_folder_of_the_node_stands_in_the_table_of_rights() -> None:
    table = INSTALL.partition("## What is installed")[2]
    found = {
        volume["hostPath"]["path"]
        for each in objects("base/*.yaml", "overlays/*/agent.yaml", "uninstall/cleaner.yaml")
        if each.get("kind") == "DaemonSet"
        for volume in each["spec"]["template"]["spec"].get("volumes", ())
    }
    assert len(found) == 8
    for path in found:
        assert f"`{path}`" in table, path


def test_a_single_replica_can_be_drained() -> None:
    budgets = [each for each in objects("base/*.yaml") if each.get("kind") == "PodDisruptionBudget"]
    assert len(budgets) == 2
    for budget in budgets:
        assert budget["spec"].keys() == {"maxUnavailable", "selector"}


def test_every_pod_keeps_to_linux_and_says_what_it_needs() -> None:
    workloads = [
        each
        for each in objects("base/*.yaml", "uninstall/cleaner.yaml")
        if each.get("kind") in ("DaemonSet", "Deployment")
    ]
    assert len(workloads) == 4
    for workload in workloads:
        spec = workload["spec"]["template"]["spec"]
        assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert spec["priorityClassName"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert container["resources"].keys() == {"requests", "limits"}, container["name"]


def test_agent_and_extender_log_in_one_form() -> None:
    parts = (("DaemonSet", "aliquot-agent"), ("Deployment", "aliquot-extender"))
    assert {environment(only(*part))["ALIQUOT_LOG_FORMAT"] for part in parts} == {"json"}


FREE_FORM = ("settings", "nodeSelector", "affinity", "resources")


def _leaves(values: Object, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and key not in FREE_FORM:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def test_the_table_has_every_value_of_the_chart_with_its_default() -> None:
    rows = re.findall(r"^\| (`[a-z][\w.`, ]+`) \| `([^|]+)` \| .*\|$", INSTALL, re.MULTILINE)
    told = {
        name: yaml.safe_load(default)
        for names, default in rows
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert told == dict(_leaves(yaml.safe_load((CHART / "values.yaml").read_text())))


def test_the_schema_knows_every_value_of_the_chart() -> None:
    def known(schema: Object, path: str = "") -> Iterator[str]:
        for key, each in schema["properties"].items():
            if "properties" in each:
                assert each["additionalProperties"] is False
                yield from known(each, f"{path}{key}.")
            else:
                yield f"{path}{key}"

    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(known(schema)) == {"global", *dict(_leaves(values))}


def test_the_version_that_is_needed_is_the_chart_s() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    [needed] = re.findall(r"It needs Kubernetes ([\d.]+) or later", INSTALL)
    assert described["kubeVersion"] == f">={needed}.0-0"
