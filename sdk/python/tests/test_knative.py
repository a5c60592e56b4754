"""The manifests of deploy/knative, held to what Knative has published: its schema of a Service, and its annotations."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).parents[3] / "deploy" / "knative"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="deploy/ is in the repository only")
MANIFESTS = sorted(FOLDER.glob("*.yaml")) if FOLDER.exists() else []
# The file names its source.
SCHEMA = json.loads((Path(__file__).parent / "data" / "knative_service_v1.json").read_text())["schema"]
# The API server knows an object's metadata by itself. A template has the same members.
SCHEMA["properties"]["metadata"] = SCHEMA["properties"]["spec"]["properties"]["template"]["properties"]["metadata"]
# From pkg/apis/autoscaling/register.go of the same version, with what they take.
ANNOTATIONS = {
    "autoscaling.knative.dev/min-scale": r"\d+",
    "autoscaling.knative.dev/max-scale": r"\d+",
    "autoscaling.knative.dev/target": r"[1-9]\d*(\.\d+)?",
}
# From pkg/apis/serving/k8s_validation.go: the name says which protocol the container speaks.
PORT_NAMES = ("h2c", "http1")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


def errors(schema: dict[str, Any], value: Any, place: str = "") -> Iterator[str]:
    """What is wrong with a value, as an API server says that validates strictly: an unknown field is an error."""
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            yield f"{place}: neither a number nor a string"
        return
    wanted = _TYPES.get(schema.get("type", ""))
    if wanted is not None and (not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool)):
        yield f"{place}: not of the type {schema['type']}"
        return
    if isinstance(value, dict):
        for name in schema.get("required", []):
            if name not in value:
                yield f"{place}.{name}: is required"
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if inner is not None:
                yield from errors(inner, part, f"{place}.{name}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{place}.{name}: is unknown"
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from errors(schema.get("items", {}), part, f"{place}[{index}]")


def manifest(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(path.read_text())
    return read


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_fit_the_published_schema(path: Path) -> None:
    service = manifest(path)
    assert (service["apiVersion"], service["kind"]) == ("serving.knative.dev/v1", "Service")
    assert list(errors(SCHEMA, service)) == []
    template = service["spec"]["template"]
    for name, value in template["metadata"]["annotations"].items():
        assert re.fullmatch(ANNOTATIONS[name], value), name
    # Scaling to zero is what the guide promises.
    assert template["metadata"]["annotations"]["autoscaling.knative.dev/min-scale"] == "0"
    for container in template["spec"]["containers"]:
        assert [port["name"] for port in container["ports"]] == [name for name in PORT_NAMES if name in path.stem]


def change(inside: Any, place: str, value: Any) -> None:
    *parents, last = [int(name) if name.isdigit() else name for name in place.split("/")]
    for name in parents:
        inside = inside[name]
    inside[last] = value


@pytest.mark.parametrize(
    ("place", "value", "error"),
    [
        ("spec/template/spec/containerConcurency", 5, "containerConcurency: is unknown"),
        ("spec/template/spec/timeoutSeconds", "30", "timeoutSeconds: not of the type integer"),
        ("spec/template/spec/containers/0/env/0", {"value": "bank:app"}, "name: is required"),
        ("spec/template/spec/containers/0/env/0/valueFrom", {"secretRef": {}}, "secretRef: is unknown"),
        ("spec/template/spec/containers/0/resources/requests", [], "requests: not of the type object"),
        ("spec/template/metadata/annotations", {"a": 1}, "annotations.a: not of the type string"),
    ],
)
def test_the_check_finds_mistakes(place: str, value: Any, error: str) -> None:
    service = copy.deepcopy(manifest(MANIFESTS[0]))
    change(service, place, value)
    assert [found for found in errors(SCHEMA, service) if found.endswith(error)]
