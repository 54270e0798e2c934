"""The one command before a commit: format, lint, types on the installed wheel, tests.

    python tests/check.py            everything below, in this order
    python tests/check.py format lint types tests

``types`` builds a wheel, installs it into a throw-away directory and checks *that*: a type checker
cannot see through an editable install with a package mapping, and a missing sub-package shows here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ["broker", "streams", "registry", "examples", "tests"]


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, cwd=cwd, check=True, env=env)


def python(*arguments: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    run(sys.executable, *arguments, cwd=cwd, env=env)


def check_format() -> None:
    python("-m", "ruff", "format", "--check", *SOURCES)


def check_lint() -> None:
    python("-m", "ruff", "check", *SOURCES)


def check_types() -> None:
    with tempfile.TemporaryDirectory() as work:
        site = Path(work) / "site"
        python("-m", "pip", "install", "-q", "--no-deps", "--target", str(site), str(ROOT))
        env = {**os.environ, "MYPYPATH": str(site)}
        python(
            "-m",
            "mypy",
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--namespace-packages",
            *(f"--package=onceward.{name}" for name in ("broker", "streams", "registry")),
            cwd=Path(work),
            env=env,
        )


def check_tests() -> None:
    python("-m", "pytest")


STEPS: dict[str, Callable[[], None]] = {
    "format": check_format,
    "lint": check_lint,
    "types": check_types,
    "tests": check_tests,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"unknown step {unknown[0]}; steps are: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    for name in names or list(STEPS):
        try:
            STEPS[name]()
        except subprocess.CalledProcessError as error:
            print(f"check failed at: {name}", file=sys.stderr)
            return error.returncode or 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
