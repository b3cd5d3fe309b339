"""The files of `deploy/`, checked as far as possible without a cluster: every name in them is
valid."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyspark
import pytest
from pyspark.sql import SparkSession
from support.machine.leftovers import runs
from support.machine.scripts import Program

from millstream import EXACTLY_ONCE_V2
from millstream.runtime.client_process import RACK_VARIABLE
from millstream.server.routes.internal import health_endpoints

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"

_MODEL = "io.fabric8.kubernetes.api.model"
#: The kinds of the manifests, in the model of the client with which Spark reads pod templates.
KINDS: Mapping[str, str] = {
    "Deployment": f"{_MODEL}.apps.Deployment",
    "Pod": f"{_MODEL}.Pod",
    "Role": f"{_MODEL}.rbac.Role",
    "RoleBinding": f"{_MODEL}.rbac.RoleBinding",
    "Service": f"{_MODEL}.Service",
    "ServiceAccount": f"{_MODEL}.ServiceAccount",
}
#: Both texts and numbers are valid.
_SCALARS = {f"{_MODEL}.IntOrString", f"{_MODEL}.Quantity"}
#: Settings of Spark whose names contain a user's name.
_OPEN = ("spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.executor.volumes.")


class Model:
    """The manifest model of Spark's Kubernetes client.

    Args:
        jvm: with Spark's jars.
    """

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._properties = cache(self._find_properties)

    def documents(self, text: str) -> list[dict[str, Any]]:
        """The documents of a YAML file."""
        parsed = self._jvm.org.yaml.snakeyaml.Yaml().loadAll(text).iterator()
        found = []
        while parsed.hasNext():
            found.append(json.loads(self._mapper.writeValueAsString(parsed.next())))
        return found

    def unknown(self, document: Mapping[str, Any]) -> list[str]:
        """The fields of a manifest that its kind does not have."""
        kind = self._jvm.java.lang.Class.forName(KINDS[document["kind"]])
        return list(self._unknown(self._mapper.constructType(kind), document, document["kind"]))

    def _unknown(self, kind: Any, value: Any, place: str) -> Iterator[str]:
        name = kind.getRawClass().getName()
        if kind.isMapLikeType() or kind.isCollectionLikeType():
            if not isinstance(value, dict if kind.isMapLikeType() else list):
                yield f"{place} is {value!r}"
                return
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            for key, each in entries:
                yield from self._unknown(kind.getContentType(), each, f"{place}.{key}")
        elif name.startswith("java.lang.") or name in _SCALARS or kind.isPrimitive():
            if isinstance(value, dict | list) or not _fits(name, value):
                yield f"{place} is {value!r}, no {name}"
        elif not isinstance(value, dict):
            yield f"{place} is {value!r}"
        else:
            properties = self._properties(kind)
            for key, each in value.items():
                if key in properties:
                    yield from self._unknown(properties[key], each, f"{place}.{key}")
                else:
                    yield f"{place}.{key}"

    def _find_properties(self, kind: Any) -> dict[str, Any]:
        about = self._mapper.getDeserializationConfig().introspect(kind)
        return {each.getName(): each.getPrimaryType() for each in about.findProperties()}


def _fits(name: str, value: object) -> bool:
    kinds: dict[str, type | tuple[type, ...]] = {
        "java.lang.Boolean": bool,
        "java.lang.Integer": int,
        "java.lang.Long": int,
        "java.lang.String": str,
    }
    return isinstance(value, kinds.get(name, (str, int)))


@pytest.fixture(scope="module")
def model(spark: SparkSession) -> Model:
    return Model(spark.sparkContext._jvm)


def manifests() -> list[Path]:
    return [path for path in sorted(KUBERNETES.glob("*.yaml")) if path.name != "kustomization.yaml"]


def driver(model: Model) -> dict[str, Any]:
    (document,) = model.documents((KUBERNETES / "driver.yaml").read_text())
    return dict(document["spec"]["template"]["spec"]["containers"][0])


@pytest.mark.extended
def test_manifests_have_only_valid_fields(model: Model) -> None:
    """A misspelled name is rejected by some servers, and silently dropped by others."""
    documents = [each for path in manifests() for each in model.documents(path.read_text())]
    assert {each["kind"] for each in documents} == KINDS.keys()
    assert [fault for each in documents for fault in model.unknown(each)] == []


def test_the_check_finds_misspelled_names(model: Model) -> None:
    text = (KUBERNETES / "executor.yaml").read_text()
    misspelled = text.replace("maxSkew: 1", "maxSkew: one").replace("fieldPath", "fieldpath")
    (document,) = model.documents(misspelled)
    assert sorted(model.unknown(document)) == [
        "Pod.spec.containers.0.env.0.valueFrom.fieldRef.fieldpath",
        "Pod.spec.topologySpreadConstraints.0.maxSkew is 'one', no java.lang.Integer",
    ]


def test_manifests_are_consistent(model: Model) -> None:
    """Names that one file defines and another one uses."""
    (kustomization,) = model.documents((KUBERNETES / "kustomization.yaml").read_text())
    (files,) = (each["files"] for each in kustomization["configMapGenerator"])
    assert all((KUBERNETES / each).is_file() for each in [*kustomization["resources"], *files])
    container = driver(model)
    assert container["image"] == kustomization["images"][0]["name"]
    mounted = container["volumeMounts"][0]["mountPath"]
    named = re.findall(rf"{mounted}/([\w.-]+)", (KUBERNETES / "driver.yaml").read_text())
    settings = conf()
    named.append(Path(settings["spark.kubernetes.executor.podTemplateFile"]).name)
    assert set(named) == set(files)
    (deployment,) = model.documents((KUBERNETES / "driver.yaml").read_text())
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    for service in model.documents((KUBERNETES / "service.yaml").read_text()):
        assert service["spec"]["selector"].items() <= labels
    if shutil.which("kubectl"):
        rendered = subprocess.run(
            ["kubectl", "kustomize", KUBERNETES], capture_output=True, text=True, timeout=60
        )
        assert rendered.returncode == 0, rendered.stderr
        kinds = [each["kind"] for each in model.documents(rendered.stdout)]
        assert sorted(kinds).count("Service") == 2
        assert "ConfigMap" in kinds


def test_the_template_names_the_rack_and_the_container(model: Model) -> None:
    (pod,) = model.documents((KUBERNETES / "executor.yaml").read_text())
    (container,) = pod["spec"]["containers"]
    assert [each["name"] for each in container["env"]] == [RACK_VARIABLE]
    settings = conf()
    assert container["name"] == settings["spark.kubernetes.executor.podTemplateContainerName"]


def test_probes_use_existing_paths(model: Model) -> None:
    container = driver(model)
    paths = {
        container[probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert (
        paths
        == {each.path for each in health_endpoints(Mock())}
        == {
            "/health/live",
            "/health/ready",
        }
    )


def conf() -> dict[str, str]:
    """The settings in spark-defaults.conf."""
    lines = (KUBERNETES / "spark-defaults.conf").read_text().splitlines()
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def commands(model: Model) -> dict[str, list[str]]:
    """The spark-submit commands, by file."""
    found = {"driver.yaml": driver(model)["command"][1:]}
    for script in sorted(DEPLOY.glob("*/submit.sh")):
        text = script.read_text().partition("exec ")[2]
        found[script.parent.name] = shlex.split(text.replace("\\\n", " "))
    return found


def test_spark_knows_every_setting_and_option(spark: SparkSession, model: Model) -> None:
    """Spark ignores unknown names."""
    jvm: Any = spark.sparkContext._jvm
    config = "org.apache.spark.internal.config"
    for name in (
        *(f"{config}.{each}$" for each in ("package", "Network")),
        *("org.apache.spark.deploy.k8s.Config$", "org.apache.spark.deploy.yarn.config.package$"),
    ):
        jvm.java.lang.Class.forName(name)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    help_text = subprocess.run(
        [submit, "--help"], capture_output=True, text=True, timeout=60
    ).stderr
    options = set(re.findall(r"--[\w-]+", help_text))
    settings = set(conf())
    for place, command in commands(model).items():
        assert command[0] == "spark-submit", place
        used = [word for word in command if word.startswith("--")]
        assert used, place
        assert set(used) <= options, place
        values = [command[index + 1] for index, word in enumerate(command) if word == "--conf"]
        settings |= {value.partition("=")[0] for value in values}
    closed = {name for name in settings if not name.startswith(_OPEN)}
    find = jvm.org.apache.spark.internal.config.ConfigEntry.findEntry
    assert len(closed) > 20
    assert [name for name in sorted(closed) if find(name) is None] == []
    assert find("spark.executor.maxFailures") is None


def test_the_program_accepts_the_settings() -> None:
    """Millstream rejects unknown names; the numbers are consistent."""
    app = runpy.run_path(str(DEPLOY / "app.py"))
    config = app["config"](
        (KUBERNETES / "application.properties").read_text(), {"SERVER_TOKEN": "t"}
    )
    assert config.processing_guarantee == EXACTLY_ONCE_V2
    assert (config.num_standby_replicas, config.server_token) == (1, "t")
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.state.mount.path"
    assert str(config.state_dir) == conf()[volume]
    slots = int(conf()["spark.executor.instances"]) * int(conf()["spark.executor.cores"])
    assert config.num_stream_threads <= slots
    assert set(app["topology"]().state_stores) == {"counts"}


#: Replaces Java in the entry point: it writes its arguments to a file, leaves a process behind that
#: ends a moment later, like stream threads, and waits for SIGTERM.
JAVA = """#!/bin/bash
printf '%s\\n' "$@" > "$ARGUMENTS_FILE"
(exec -a 'python -m pyspark.daemon' sleep 2) &
echo "thread $!"
sleep 60 &
waiting=$!
trap 'kill $waiting; exit 143' TERM
echo started
wait $waiting
"""


def test_the_entry_point_runs_an_executor_and_waits_for_its_threads(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Goal: Spark understands the command; threads may end after Java, and before the container.

    Method: another `java`, which is stopped by a signal.
    """
    (tmp_path / "java").write_text(JAVA)
    (tmp_path / "java").chmod(0o755)
    arguments_file = tmp_path / "arguments"
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "ARGUMENTS_FILE": str(arguments_file),
        "SPARK_HOME": "/opt/spark",
        "SPARK_JAVA_OPT_0": "-Da=b c",
        "SPARK_JAVA_OPT_1": "-XX:+UseSerialGC",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@shop-driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "shop-exec-3",
    }
    entry = DEPLOY / "image" / "entrypoint.sh"
    with Program(entry, "executor", home=tmp_path, environment=environment) as program:
        program.wait_for_line("started")
        program.signal(signal.SIGTERM)
        assert program.wait_ended(30) == 143
        assert not runs(int(program.wait_for_line("thread")))
    words = arguments_file.read_text().splitlines()
    assert words[:4] == ["-Da=b c", "-XX:+UseSerialGC", "-Xms512m", "-Xmx512m"]
    where = words.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    jvm: Any = spark.sparkContext._jvm
    backend = jvm
    for each in words[where].split("."):
        backend = getattr(backend, each)
    text = jvm.java.lang.Class.forName("java.lang.String")
    arguments = jvm.java.lang.reflect.Array.newInstance(text, len(words) - where - 1)
    for index, word in enumerate(words[where + 1 :]):
        arguments[index] = word
    parsed = backend.parseArguments(arguments, words[where])
    assert (parsed.executorId(), parsed.cores(), parsed.podName()) == ("3", 2, "shop-exec-3")
