#!/usr/bin/env python3
"""llama-server's command line, for `llmcc serve`.

llama.cpp's server tests start a server by its flags. This program reads them, compiles the model once, and becomes
`llmcc serve` with the flags that mean the same. A flag without a counterpart ends it with a message.

LLMCC names the compiler (`llmcc` by default), LLMCC_MODELS a folder with stories260K-F32.gguf, LLMCC_ARTIFACTS a
folder where compiled models stay.
"""

import argparse
import json
import os
import sys
import tempfile

import models

# Flags that change no answer: how llama.cpp's engine is set up, and abilities that `llmcc serve` has without asking.
WITHOUT_EFFECT = [
    "--offline", "--cont-batching", "--kv-unified", "--swa-full", "--embedding", "--reranking", "--jinja", "--no-jinja",
    "--backend_sampling", "--no-models-autoload",
]
WITHOUT_EFFECT_OF_A_VALUE = ["--threads", "--n-gpu-layers", "--batch-size", "--ubatch-size", "-fa"]


def parser() -> argparse.ArgumentParser:
    """The flags that mean something here."""
    flags = argparse.ArgumentParser(prog="llama-server", allow_abbrev=False)
    for name in WITHOUT_EFFECT + ["--metrics", "--slots", "--no-slots", "--no-ui", "--verbose"]:
        flags.add_argument(name, action="store_true")
    for name in WITHOUT_EFFECT_OF_A_VALUE:
        flags.add_argument(name)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", default="8080")
    flags.add_argument("--temp", type=float)
    flags.add_argument("--seed", type=int)
    flags.add_argument("--n-predict", type=int)
    flags.add_argument("--ctx-size", type=int)
    flags.add_argument("--parallel", type=int)
    flags.add_argument("--model")
    flags.add_argument("--hf-repo")
    flags.add_argument("--hf-file")
    flags.add_argument("--alias")
    flags.add_argument("--api-key")
    flags.add_argument("--pooling")
    flags.add_argument("--models-max", type=int)
    flags.add_argument("--cors-origins")
    flags.add_argument("--chat-template")
    flags.add_argument("--chat-template-file")
    flags.add_argument("--reasoning", choices=["on", "off", "auto"])
    flags.add_argument("--reasoning-format", choices=["deepseek"])
    return flags


def defaults(given: argparse.Namespace) -> dict:
    """Members of requests that count where a request has none."""
    found = {"temperature": given.temp}
    if given.seed is not None and given.seed >= 0:
        found["seed"] = given.seed
    if given.n_predict is not None and given.n_predict > 0:
        found["max_tokens"] = given.n_predict
    # llama.cpp gives templates this variable always.
    found["chat_template_kwargs"] = {"enable_thinking": given.reasoning != "off"}
    if given.verbose:
        found["verbose"] = True
    if "bos_token" not in models.template(given):
        # llama.cpp begins prompts with the token for that, whether the template has it or not.
        found["add_special_tokens"] = True
    return {name: value for name, value in found.items() if value is not None}


def translated(given: argparse.Namespace) -> list:
    """The same flags for `llmcc serve`."""
    out = ["--host", given.host, "--port", given.port, "--drain-seconds", "1", "--any-model"]
    out += ["--max-running", str(given.parallel)] if given.parallel else []
    out += ["--max-models", str(given.models_max)] if given.models_max else []
    out += [] if given.metrics else ["--without", "/metrics"]
    out += [] if given.slots else ["--without", "/slots"]
    out += ["--no-page"] if given.no_ui else []
    for origin in (given.cors_origins or "*").split(","):
        out += ["--allow-origin", origin]
    for name, value in defaults(given).items():
        out += ["--default", f"{name}={json.dumps(value)}"]
    if given.api_key:
        with tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False) as keys:
            keys.write("\n".join(given.api_key.split(",")) + "\n")
        out += ["--api-key-file", keys.name]
    return out


def main() -> None:
    """Becomes the server."""
    given = parser().parse_args()
    llmcc = os.environ.get("LLMCC", "llmcc")
    artifact = models.artifact(llmcc, given)
    if artifact is None:
        # A server without a model answers what needs none.
        model = ["--model-dir", tempfile.mkdtemp()]
    else:
        model = [artifact, "--served-name", given.alias or "model"]
    command = [os.environ.get("LLMCC_SERVER", llmcc), "serve", *model, *translated(given)]
    sys.stdout.flush()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
