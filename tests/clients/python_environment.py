"""A Python with the packages that a list pins, made once below the target folder for each list."""

import hashlib
import os
import pathlib
import subprocess
import sys

import s3_endpoint


def python_with(requirements, name):
    """The path of that Python. `name` begins the name of its folder."""
    seed = sys.version.encode() + requirements.read_bytes()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", s3_endpoint.REPOSITORY / "target"))
    folder = target / "tools" / f"{name}-{hashlib.sha256(seed).hexdigest()[:16]}"
    python = folder / "bin/python"
    if not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", requirements], check=True)
        (folder / "whole").touch()
    return python.absolute()
