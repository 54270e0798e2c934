"""What gets installed is what is in the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from .source import PACKAGES, ROOT


def declared_packages() -> set[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return set(tomllib.load(file)["tool"]["setuptools"]["packages"])


def directories() -> set[str]:
    return {
        "onceward." + ".".join(path.parent.relative_to(ROOT).parts)
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    }


def test_every_package_directory_is_declared_and_nothing_else() -> None:
    assert declared_packages() == directories()


def test_every_directory_with_sources_is_a_package() -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent} has no __init__.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built, offline, from a copy of the tree (a build leaves files behind)."""
    pytest.importorskip("setuptools", "77", reason="pip install '.[test]' brings setuptools")
    work = tmp_path_factory.mktemp("wheel")
    tree = work / "tree"
    tree.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "build")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree / name)
    build = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    subprocess.run(
        [sys.executable, "-c", build, str(work)], cwd=tree, check=True, capture_output=True
    )
    return next(work.glob("*.whl"))


def test_the_wheel_holds_every_module_and_the_type_marker(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert f"onceward/{path.relative_to(ROOT).as_posix()}" in names
        assert f"onceward/{package}/py.typed" in names


def test_the_wheel_holds_nothing_but_onceward(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"onceward"}


def test_the_top_level_of_the_repository_is_fixed() -> None:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout: the list of files comes from git")
    tops = {line.split("/")[0] for line in listing.stdout.splitlines()}
    allowed = {"pyproject.toml", "README.md", "streams", "broker", "registry", "examples", "tests"}
    assert {top for top in tops if not top.startswith(".")} <= allowed
