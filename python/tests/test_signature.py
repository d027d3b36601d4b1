"""Signed artifacts: nothing of another file is executed."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
from pathlib import Path

import pytest

import llmcc

PATH = os.environ.get("LLMCC_TEST_ARTIFACT", "")
pytestmark = pytest.mark.skipif(not (PATH and os.environ.get("LLMCC")), reason="skipped: set LLMCC_TEST_ARTIFACT and LLMCC")

#: The keys of RFC 8410, section 10.
SECRET = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n"
PUBLIC = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"


def test_signed_artifacts_are_loaded(tmp_path: Path) -> None:
    file, secret, public = tmp_path / "m.so", tmp_path / "secret.pem", tmp_path / "public.pem"
    shutil.copyfile(PATH, file)
    secret.write_text(SECRET)
    public.write_text(PUBLIC)
    with pytest.raises(llmcc.LlmccError, match="is not signed"):
        llmcc.load(file, threads=1, max_tokens=64, key=public)
    subprocess.run([os.environ["LLMCC"], "sign", file, "--key", secret], check=True, stdout=subprocess.DEVNULL)
    with llmcc.load(file, threads=1, max_tokens=64, key=public) as model:
        made = pickle.dumps(model)
    pickle.loads(made).close()
    with pytest.raises(llmcc.LlmccError, match="it is a private key"):
        llmcc.load(file, key=secret)
    with open(file, "r+b") as artifact:
        artifact.seek(file.stat().st_size // 2)
        artifact.write(b"\x55\xaa\x55\xaa")
    with pytest.raises(llmcc.LlmccError) as caught:
        llmcc.load(file, threads=1, max_tokens=64, key=public)
    assert caught.value.status == llmcc.Status.ARTIFACT
