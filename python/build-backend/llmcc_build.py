"""Builds the wheel of the Python package (PEP 517).

It has the compiler in it, which maturin builds by Cargo: ``pip wheel ./python``. With ``-C compiler=none`` it is the package alone, by setuptools and in a
second: enough to run artifacts, and what contributors and tests install.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

Settings = Optional[Mapping[str, Any]]

MATURIN = "maturin==1.16.0"
SETUPTOOLS = "setuptools>=77"
#: The oldest glibc that the compiler runs with: 2.34.
PLATFORM = "manylinux_2_34"
#: Programs in Python. Installers write a starter for each, which works in folders with spaces, too.
ENTRY_POINTS = b"[console_scripts]\nllmcc-eval = llmcc._harness:main\n"


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """The builder, which pip installs for the time of the build."""
    return [MATURIN if _with_compiler(config_settings) else SETUPTOOLS]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None) -> str:
    """Builds the wheel in ``wheel_directory`` and returns its name."""
    if _with_compiler(config_settings):
        arguments = {"build-args": f"--compatibility {PLATFORM}"}
        name = importlib.import_module("maturin").build_wheel(wheel_directory, arguments)
    else:
        name = importlib.import_module("setuptools.build_meta").build_wheel(wheel_directory)
    return _with_entry_points(wheel_directory, name)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """The builder of an editable installation, which never has the compiler in it."""
    return [SETUPTOOLS]


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None) -> str:
    """Builds a wheel that refers to the sources: ``pip install -e ./python``."""
    name = importlib.import_module("setuptools.build_meta").build_editable(wheel_directory)
    return _with_entry_points(wheel_directory, name)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Fails: the compiler's sources are not below this folder."""
    raise SystemExit("llmcc-aot has no source distribution: build a wheel from the repository, `pip wheel ./python` or `python -m build --wheel ./python`")


def _with_entry_points(folder: str, name: str) -> str:
    """Adds the programs in Python to a wheel and returns its name: maturin allows no entry points beside a program."""
    wheel, part = Path(folder, name), Path(folder, name + ".part")
    with zipfile.ZipFile(wheel) as made:
        files = [(info, made.read(info)) for info in made.infolist()]
    record = next(info for info, _ in files if info.filename.endswith(".dist-info/RECORD"))
    added = zipfile.ZipInfo(record.filename[: -len("RECORD")] + "entry_points.txt", record.date_time)
    added.compress_type, added.external_attr = record.compress_type, record.external_attr
    digest = base64.urlsafe_b64encode(hashlib.sha256(ENTRY_POINTS).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(part, "w") as made:
        for info, content in files:
            if info is record:
                made.writestr(added, ENTRY_POINTS)
                content = f"{added.filename},sha256={digest},{len(ENTRY_POINTS)}\n".encode() + content
            made.writestr(info, content)
    os.replace(part, wheel)
    return name


def _with_compiler(settings: Settings) -> bool:
    wanted = (settings or {}).get("compiler", "inside")
    if wanted not in ("inside", "none"):
        raise SystemExit(f"-C compiler={wanted}: expected `inside` (the default) or `none`")
    return wanted == "inside"
