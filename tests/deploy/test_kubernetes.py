"""The Kubernetes example: probes that ask the worker, time to drain, and a restricted pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy import reading
from tests.deploy.reading import KUBERNETES, option

KINDS = {"Secret": "v1", "Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1"}
OF_POD = {
    *("terminationGracePeriodSeconds", "automountServiceAccountToken", "securityContext"),
    *("containers", "volumes"),
}
OF_CONTAINER = {
    *("name", "image", "args", "env", "ports", "startupProbe", "readinessProbe", "livenessProbe"),
    *("lifecycle", "resources", "securityContext", "volumeMounts"),
}
OF_PROBE = {"httpGet", "periodSeconds", "failureThreshold", "timeoutSeconds"}
_SIZES = {"Ki": 10, "Mi": 20, "Gi": 30}

DOCUMENTS = [document for path in KUBERNETES for document in reading.documents(path)]


def of(kind: str) -> dict[str, Any]:
    (found,) = (each for each in DOCUMENTS if each["kind"] == kind)
    return dict(found)


@pytest.fixture
def pod() -> dict[str, Any]:
    return dict(of("Deployment")["spec"]["template"]["spec"])


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    return dict(found)


def test_every_document_has_a_kind_a_version_and_a_name() -> None:
    assert {each["kind"]: each["apiVersion"] for each in DOCUMENTS} == KINDS
    assert all(each["metadata"]["name"] for each in DOCUMENTS)


def test_all_fields_are_known(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod.keys() <= OF_POD
    assert container.keys() <= OF_CONTAINER
    probes = [container[name] for name in container if name.endswith("Probe")]
    assert all(probe.keys() <= OF_PROBE for probe in probes)


def test_selectors_select_the_pods() -> None:
    spec = of("Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"]
    for selector in (spec["selector"], of("PodDisruptionBudget")["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_probes_ask_the_port_that_the_worker_serves(container: dict[str, Any]) -> None:
    (port,) = container["ports"]
    assert option(container["args"], "--http-port") == str(port["containerPort"])
    assert option(container["args"], "--http-host") == "0.0.0.0"
    paths = {}
    assert "startupProbe" not in container  # it would restart a pod that waits for Redis
    for name in ("readinessProbe", "livenessProbe"):
        asked = container[name]["httpGet"]
        assert asked["port"] == port["name"]
        paths[name] = asked["path"]
    assert paths == {"readinessProbe": "/readyz", "livenessProbe": "/livez"}
    annotations = of("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])


def test_a_pod_has_longer_to_stop_than_the_pause_and_the_drain_take(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    *_, program = container["lifecycle"]["preStop"]["exec"]["command"]
    compile(program, "preStop", "exec")
    pause_s = float(program.partition("time.sleep(")[2].partition(")")[0])
    drain_s = float(option(container["args"], "--drain-s"))
    assert pod["terminationGracePeriodSeconds"] > pause_s + drain_s


def test_a_process_is_replaced_before_the_pod_is_killed(container: dict[str, Any]) -> None:
    limit = _bytes(container["resources"]["limits"]["memory"])
    each = _bytes(option(container["args"], "--max-rss").removesuffix("B"))
    assert int(option(container["args"], "--processes")) * each < limit


def test_a_pod_is_restricted(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = reading.inherited(reading.stages(reading.DOCKERFILE.read_text()), "shop", "USER")
    assert user is not None
    context = pod["securityContext"]
    assert user.rest == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_the_url_with_its_password_comes_from_the_secret(container: dict[str, Any]) -> None:
    (variable,) = container["env"]
    assert variable["name"] == "TAMBO_REDIS_URL"
    secret = of("Secret")
    wanted = variable["valueFrom"]["secretKeyRef"]
    assert wanted["name"] == secret["metadata"]["name"]
    assert secret["stringData"][wanted["key"]].startswith("redis://")


def _bytes(size: str) -> int:
    return int(size[:-2]) << _SIZES[size[-2:]]
