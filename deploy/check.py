#!/usr/bin/env python3
"""Checks the files beside it, as far as this machine can: the Dockerfile (hadolint), the manifest (the schemas of Kubernetes), the unit (systemd-analyze).

The Python that runs this has what requirements.txt lists.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).resolve().parent
KUBERNETES = "1.37"
#: Kinds of extensions: their fields are checked by who installs these.
EXTENSIONS = {"InferencePool": "inference.networking.k8s.io/v1", "InferenceObjective": "llm-d.ai/v1alpha2", "HTTPRoute": "gateway.networking.k8s.io/v1"}
#: systemd's mark for how much a service may do, from 0 to 10.
EXPOSURE = 2.0


def dockerfile() -> None:
    hadolint = pathlib.Path(sys.executable).parent / "hadolint"
    subprocess.run([hadolint, HERE / "Dockerfile"], check=True)


def manifest() -> None:
    documents = list(yaml.safe_load_all((HERE / "kubernetes.yaml").read_text()))
    for document in documents:
        if EXTENSIONS.get(document["kind"]) != document["apiVersion"]:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    one = {document["kind"]: document for document in documents}
    pod = one["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    # Parts that name each other.
    labels, port = pod["metadata"]["labels"], container["ports"][0]["containerPort"]
    assert one["Service"]["spec"]["selector"] == one["InferencePool"]["spec"]["selector"]["matchLabels"] == labels
    assert one["InferencePool"]["spec"]["targetPorts"] == [{"number": port}] and one["Service"]["spec"]["ports"][0]["port"] == port
    assert one["InferenceObjective"]["spec"]["poolRef"]["name"] == one["HTTPRoute"]["spec"]["rules"][0]["backendRefs"][0]["name"] == one["InferencePool"]["metadata"]["name"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["spec"]["volumes"]}
    drain = next(int(arg.split("=")[1]) for arg in container["args"] if arg.startswith("--drain-seconds="))
    assert pod["spec"]["terminationGracePeriodSeconds"] > drain + container["lifecycle"]["preStop"]["sleep"]["seconds"]


def unit() -> None:
    if shutil.which("systemd-analyze") is None:
        print("llmcc.service: skipped, there is no systemd-analyze")
        return
    with tempfile.TemporaryDirectory() as folder:
        # (The program need not be installed here.)
        program = pathlib.Path(folder) / "llmcc"
        shutil.copy("/bin/true", program)
        copy = pathlib.Path(folder) / "llmcc.service"
        copy.write_text((HERE / "llmcc.service").read_text().replace("/usr/local/bin/llmcc", str(program)))
        found = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
        assert found.returncode == 0 and str(copy) not in found.stderr, found.stderr
        subprocess.run(["systemd-analyze", "security", "--offline=yes", f"--threshold={10 * EXPOSURE:.0f}", copy], check=True, stdout=subprocess.DEVNULL)


for check in (dockerfile, manifest, unit):
    check()
    print(f"{check.__name__}: passed")
