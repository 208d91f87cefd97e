"""What people install: the wheel, the source distribution, and what they say about themselves."""

import ast
import fnmatch
import importlib.metadata
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import clustpsi

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
MADE_HERE = (".git", ".venv*", ".mutants", ".*_cache", ".hypothesis", "build", "dist", "runs")


def _made_here(folder: str, names: list[str]) -> set[str]:
    """What a clean clone has not; the list of files of an earlier build would hide what this one omits."""
    patterns = MADE_HERE if Path(folder) == ROOT else ("*.egg-info",)
    return set(itertools.chain.from_iterable(fnmatch.filter(names, pattern) for pattern in patterns))


class Distributions(NamedTuple):
    wheel: Path
    source: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Both distributions, built from a copy: a build leaves files beside the sources, which other tests use."""
    folder = tmp_path_factory.mktemp("packaging")
    shutil.copytree(ROOT, folder / "copy", ignore=_made_here)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(folder / "copy")]
    subprocess.run(command, check=True, capture_output=True)
    return Distributions(*folder.glob("*.whl"), *folder.glob("*.tar.gz"))


def test_wheel_has_the_whole_package_and_nothing_else(built: Distributions) -> None:
    names = {name for name in zipfile.ZipFile(built.wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for kind in ("*.py", "*.csv", "*.json", "py.typed", "templates/*", "assets/*")
        for path in (source / "clustpsi").rglob(kind)
    }
    assert {"clustpsi/py.typed", "clustpsi/paper/__init__.py"} < expected
    assert any(name.endswith(".csv") for name in expected)
    assert names == expected


def test_source_distribution_has_what_a_developer_needs(built: Distributions) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in (".ci", "benchmarks", "docs", "examples", "src/clustpsi", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not re.search(r"__pycache__|\.egg-info|\.ipynb_checkpoints", str(path)):
                assert path.relative_to(ROOT).as_posix() in names
    at_the_top = {"LICENSE", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff", "Makefile", "mkdocs.yml"}
    assert at_the_top | {"constraints.txt", "pyproject.toml"} <= names
    assert not [name for name in names if "__pycache__" in name]


def test_installed_wheel_runs(built: Distributions, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(built.wheel)], check=True)
    where_it_is = {**os.environ, "PYTHONPATH": str(target)}

    def printed(*command: str) -> str:
        return subprocess.run(
            command, env=where_it_is, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    facts = "import clustpsi; print(clustpsi.__version__, clustpsi.__file__)"
    assert printed(sys.executable, "-c", facts) == f"{VERSION} {target / 'clustpsi' / '__init__.py'}"
    assert printed(str(target / "bin" / "clustpsi"), "--version") == f"clustpsi {VERSION}"


def test_all_places_name_the_same_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released is not None
    assert clustpsi.__version__ == importlib.metadata.version("clustpsi")
    assert VERSION == str(citation["version"]) == released[1]


def test_finding_10_public_names_stay_what_they_are() -> None:
    # A module of a public name's own would take its place as soon as it is imported.
    first, second = ([getattr(clustpsi, name) for name in clustpsi.__all__] for _ in range(2))
    assert first == second and not any(isinstance(value, ModuleType) for value in second)
    script = (
        "from clustpsi import run; import clustpsi.runs.run, clustpsi; assert run is clustpsi.run; print(callable(run))"
    )
    fresh = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert fresh.stdout.strip() == "True"


# What Windows does not have.
UNIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "pty", "syslog", "readline", "curses", "posix"}
ELSEWHERE = f"""
import os, signal, sys
sys.modules.update(dict.fromkeys({UNIX_MODULES - {"posix"}}))
for module, names in ((os, ("killpg", "mkfifo", "sched_getaffinity")), (signal, ("SIGKILL", "pthread_sigmask"))):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
from pathlib import Path
import clustpsi.cli.app
from clustpsi.experiments.workers import _sigint_blocked
from clustpsi.runs.store import RunFolder, write_json
with RunFolder(Path("run")).locked(), _sigint_blocked():
    Path("run").mkdir()
    write_json(Path("run") / "config.json", {{}})
"""


def test_finding_11_nothing_needs_what_only_unix_has(tmp_path: Path) -> None:
    for path in (ROOT / "src").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not names & UNIX_MODULES, path
    done = subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "config.json").read_text() == "{}\n"


def test_version_is_looked_up_only_when_asked_for() -> None:
    script = "import sys, clustpsi; print('importlib.metadata' in sys.modules)"
    light = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert light.stdout.strip() == "False"


def test_one_version_of_everything_serves_all_extras() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert list(pins) == sorted(pins) and len(pins) == len(lines)
    extras = {**PROJECT["optional-dependencies"], "": PROJECT["dependencies"]}
    del extras["benchmark"]  # PyTorch, which is only measured against, names its version itself
    for needed in (Requirement(text) for texts in extras.values() for text in texts):
        if needed.name == PROJECT["name"]:  # an extra that holds others
            assert needed.extras <= extras.keys()
            continue
        assert pins[canonicalize_name(needed.name)] in needed.specifier, needed
