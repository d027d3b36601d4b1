#!/usr/bin/env python3
"""Clients that people use, each by a script beside this file, against `llmcc serve` on the example model.

The model's chat template shows calls of tools here, which its own does not; nothing else is changed. The Python that
runs this has what requirements.txt lists, and --node-modules what package-lock.json does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Iterator

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parents[2] / "examples" / "tiny-llama" / "model"
#: Conversations as the example's own template prints them, with tools and their calls as Hermes' models write them.
TEMPLATE = """\
{%- if tools %}{{ bos_token }}# tools: {% for t in tools %}{{ t.function | tojson }}{{ '\\n' }}{% endfor %}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '# assistant:\\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}\\n</tool_call>\\n' }}{% endfor %}
{{- '\\n' + eos_token }}
{%- else %}
{%- if loop.first and not tools or not loop.first and messages[loop.index0 - 1].role == 'assistant' %}{{ bos_token }}{% endif %}
{{- '# ' + m.role + ': ' + m.content + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '# assistant:\\n' }}{% endif %}"""
#: Python's scripts; a script that is not named runs.
ALL = sorted(path.stem.removesuffix("_client") for path in HERE.glob("*_client.*"))


def arguments() -> argparse.Namespace:
    """What to run."""
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("clients", nargs="*", metavar="CLIENT", help=f"some of {', '.join(ALL)} [default: all]")
    args.add_argument("--llmcc", default=os.environ.get("LLMCC", "llmcc"), help="the compiler [default: $LLMCC, else llmcc]")
    args.add_argument("--node-modules", type=pathlib.Path, help="folder node_modules with the JavaScript packages; without it their scripts are skipped")
    return args.parse_args()


def compiled(llmcc: str, folder: pathlib.Path) -> pathlib.Path:
    """The example model, compiled with the template above."""
    model = folder / "model"
    shutil.copytree(EXAMPLE, model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}))
    done = subprocess.run([llmcc, "compile", model, "-o", folder / "tiny.so", "--w4"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stdout)
    return folder / "tiny.so"


@contextlib.contextmanager
def serving(llmcc: str, artifact: pathlib.Path, *options: str) -> Iterator[str]:
    """A server of an artifact, by its URL. It must end by itself when asked to."""
    command = [llmcc, "serve", artifact, "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        if not line.startswith("listening at "):
            raise SystemExit(f"`{command}` did not begin: {line!r}")
        yield line.split()[-1]
    finally:
        server.terminate()
        try:
            server.wait(timeout=60)
        except subprocess.TimeoutExpired:
            server.kill()
            raise
    if server.returncode != 0:
        raise SystemExit(f"the server ended with {server.returncode}")


def ran(script: pathlib.Path, environment: dict[str, str], modules: pathlib.Path | None) -> bool:
    """Whether a client's script ends well; its output is shown where it does not."""
    name, began = script.name, time.monotonic()
    if script.suffix == ".mjs":
        if modules is None:
            print(f"{name}: skipped (--node-modules)")
            return True
        # (Packages are found from the script's folder.)
        copy = modules.parent / name
        shutil.copyfile(script, copy)
        command = ["node", str(copy)]
    else:
        command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    print(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'} ({time.monotonic() - began:.1f} s)", flush=True)
    if done.returncode != 0:
        print(done.stdout, flush=True)
    return done.returncode == 0


def main() -> int:
    args = arguments()
    names = args.clients or ALL
    scripts = [path for path in sorted(HERE.glob("*_client.*")) if path.stem.removesuffix("_client") in names]
    with tempfile.TemporaryDirectory() as folder:
        artifact = compiled(args.llmcc, pathlib.Path(folder))
        with serving(args.llmcc, artifact) as url:
            environment = {
                **os.environ,
                "LLMCC_URL": url,
                "LLMCC_MODEL": artifact.stem,
                "LLMCC_TOKENIZER": str(artifact.parent / "model"),
                # Nothing may be asked for elsewhere.
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "LANGSMITH_TRACING": "false",
                "OPENAI_AGENTS_DISABLE_TRACING": "1",
                "DO_NOT_TRACK": "1",
            }
            passed = [ran(script, environment, args.node_modules) for script in scripts]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) and passed else 1


if __name__ == "__main__":
    sys.exit(main())
