"""The examples in docs/deploy: they parse, and say what the program really does."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.cli.main import LateCommand, cli
from frazil.config.load import parse_config
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError, Fenced
from frazil.observability.metrics import METRICS
from frazil.serve.http.health import PATIENCE_SECONDS
from frazil.serve.http.server import DEFAULT_PORT

DOCS = Path(__file__).parents[3] / "docs"
UNIT = DOCS / "deploy" / "frazil@.service"
MANIFESTS = DOCS / "deploy" / "kubernetes.yaml"
SUBMIT = DOCS / "deploy" / "spark-submit.sh"


def unit() -> dict[str, dict[str, list[str]]]:
    """Sections, keys, and all values of a key, since a unit may name one several times."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    section = ""
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            found[section][key].append(value)
    return found


def manifests() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFESTS.read_text())}


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["Deployment"]["spec"]["template"]["spec"]
    return found


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of these; fails for an option that does not exist."""
    assert arguments[0] == "run"
    command = cli.commands["run"]
    run = command.load() if isinstance(command, LateCommand) else command
    return run.make_context("run", arguments[1:]).params


def test_the_unit_starts_the_daemon_and_leaves_it_alone_where_a_restart_would_harm() -> None:
    service = unit()["Service"]
    program, *arguments = shlex.split(service["ExecStart"][0].replace("%i", "shop"))
    assert program.endswith("/bin/frazil")
    assert parsed(arguments)["once"] is False
    assert service["Restart"] == ["on-failure"]
    kept_down = {int(code) for code in service["RestartPreventExitStatus"][0].split()}
    assert kept_down == {ConfigError.exit_code, Fenced.exit_code}
    assert service["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert service["KillMode"] == ["mixed"]
    assert float(service["TimeoutStopSec"][0]) > PipelineConfig.model_fields["shutdown"].default


def test_the_unit_is_hardened_but_not_so_that_java_cannot_run() -> None:
    service = unit()["Service"]
    for key in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictNamespaces"):
        assert service[key] == ["yes"], key
    assert service["ProtectSystem"] == ["strict"]
    assert service["CapabilityBoundingSet"] == [""]
    assert "MemoryDenyWriteExecute" not in service
    writable = {f"/var/{kind}/{service[key][0]}" for key, kind in
                (("StateDirectory", "lib"), ("CacheDirectory", "cache"))}  # fmt: skip
    assert service["WorkingDirectory"][0] in writable
    assert service["Environment"][0].partition("=")[2] in writable


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/frazil/bin/frazil", "/bin/true").replace("User=frazil\n", "")
    (tmp_path / "frazil@shop.service").write_text(text)
    call = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "frazil@shop.service")]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert "frazil@shop" not in done.stderr, done.stderr


def test_the_configuration_in_the_pod_loads_with_the_secrets_that_it_gets() -> None:
    secrets = manifests()["Secret"]["stringData"]
    ((name, text),) = manifests()["ConfigMap"]["data"].items()
    config = parse_config(text, name=name, environ=secrets)
    assert set(re.findall(r"\$\{(\w+)", text)) == set(secrets)
    (container,) = pod()["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert config.http.host == "0.0.0.0"
    assert config.http.port == ports["http"] == DEFAULT_PORT
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert parsed(container["args"])["config"] is not None
    assert f"{mounted['config']}/{name}" in container["args"]
    assert {"name": "FRAZIL_HOME", "value": mounted["cache"]} in container["env"]
    assert {volume["name"] for volume in pod()["volumes"]} == set(mounted)


def test_there_is_one_pod_at_a_time_and_it_may_finish() -> None:
    deployment = manifests()["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    assert pod()["terminationGracePeriodSeconds"] > PipelineConfig.model_fields["shutdown"].default
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert manifests()["Service"]["spec"]["selector"] == deployment["selector"]["matchLabels"]
    claimed = [volume["persistentVolumeClaim"]["claimName"] for volume in pod()["volumes"] if len(volume) == 2
               and "persistentVolumeClaim" in volume]  # fmt: skip
    assert claimed == [manifests()["PersistentVolumeClaim"]["metadata"]["name"]]


def test_probes_ask_what_the_daemon_answers() -> None:
    (container,) = pod()["containers"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def test_the_script_for_spark_submit_is_one_and_runs_the_daemon() -> None:
    assert subprocess.run(["sh", "-n", str(SUBMIT)], check=False).returncode == 0
    called = SUBMIT.read_text().split('frazil_submit.py" ')[1]
    arguments = shlex.split(called.replace("$config", "shop.yaml").replace("$master", "yarn").replace('"$@"', ""))
    found = parsed(arguments)
    assert (found["once"], found["overrides"]) == (False, ("spark.master=yarn",))
    main = ast.parse((DOCS / "deploy" / "frazil_submit.py").read_text())
    assert [node.module for node in ast.walk(main) if isinstance(node, ast.ImportFrom)] == ["frazil.cli.main"]


def test_the_page_about_operations_is_true() -> None:
    text = (DOCS / "operations.md").read_text()
    names = {spec.name for spec in METRICS}
    assert set(re.findall(r"\b(?:frazil|sync|iceberg)_[a-z_]+\b", text)) <= names | {"frazil_submit"}
    assert PATIENCE_SECONDS == 120, "the page says two minutes"
    assert f"127.0.0.1:{DEFAULT_PORT}" in text
