"""Builds the wheel of the Python package (PEP 517).

It has the compiler in it, which maturin builds by Cargo: ``pip wheel ./python``. With ``-C compiler=none`` it is the package alone, by setuptools and in a
second: enough to run artifacts, and what contributors and tests install.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Optional

Settings = Optional[Mapping[str, Any]]

MATURIN = "maturin==1.16.0"
SETUPTOOLS = "setuptools>=77"
#: The oldest glibc that the compiler runs with: 2.34.
PLATFORM = "manylinux_2_34"


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """The builder, which pip installs for the time of the build."""
    return [MATURIN if _with_compiler(config_settings) else SETUPTOOLS]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None) -> str:
    """Builds the wheel in ``wheel_directory`` and returns its name."""
    if not _with_compiler(config_settings):
        return importlib.import_module("setuptools.build_meta").build_wheel(wheel_directory)
    arguments = {"build-args": f"--compatibility {PLATFORM}"}
    return importlib.import_module("maturin").build_wheel(wheel_directory, arguments)


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """The builder of an editable installation, which never has the compiler in it."""
    return [SETUPTOOLS]


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: Optional[str] = None) -> str:
    """Builds a wheel that refers to the sources: ``pip install -e ./python``."""
    return importlib.import_module("setuptools.build_meta").build_editable(wheel_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Fails: the compiler's sources are not below this folder."""
    raise SystemExit("llmcc-aot has no source distribution: build a wheel from the repository, `pip wheel ./python` or `python -m build --wheel ./python`")


def _with_compiler(settings: Settings) -> bool:
    wanted = (settings or {}).get("compiler", "inside")
    if wanted not in ("inside", "none"):
        raise SystemExit(f"-C compiler={wanted}: expected `inside` (the default) or `none`")
    return wanted == "inside"
