"""Lay out the real SGLang for machines without a GPU: ``python -m hicache_fsm.sglang.install [VERSION ...]``.

The folder (``.sglang`` by default) holds ``env``, one light virtual environment shared by every
SGLang version, and one folder per version with nothing but that version's wheel, so that a version is
chosen by ``PYTHONPATH`` alone. Standard library only: this runs before anything else is installed.

Each part is finished by a stamp that names what it was made from. A part with the right stamp is left
alone, one without is made anew, so a second call returns at once and an interrupted one is redone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("0.5.19", "0.5.20", "0.5.21", "0.5.22", "0.5.23")
"""The SGLang versions that this harness knows."""
DEFAULT_VERSIONS = ("0.5.19", "0.5.23")
"""Those laid out where none is named: the oldest and the newest."""
TORCH = "torch==2.13.0"
STAMP = ".complete.json"
ENTRY_POINT = "[sglang.srt.plugins]\nhicache_fsm = hicache_fsm.sglang.plugin:register\n"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
PACKAGE_ROOT = Path(__file__).resolve().parents[2]
"""The folder that has to be importable for ``import hicache_fsm``: a checkout or a site-packages."""
IN_CHECKOUT = (PACKAGE_ROOT / "pyproject.toml").is_file()
DEFAULT_ROOT = (PACKAGE_ROOT if IN_CHECKOUT else Path.cwd()) / ".sglang"
COMMAND = "python -m hicache_fsm.sglang.install"


class InstallError(Exception):
    """A part could not be laid out; the message is one line and says which and why."""


def check_known(version: str) -> None:
    """Raises ``ValueError`` for a version that this harness does not know."""
    if version not in VERSIONS:
        raise ValueError(f"unknown SGLang version {version}: this harness knows {', '.join(VERSIONS)}")


def mend(version: str) -> str:
    """The command that lays a version out."""
    if version not in DEFAULT_VERSIONS:
        return f"{COMMAND} {version}"
    return "make sglang" if IN_CHECKOUT else COMMAND


def env_python(root: Path) -> Path:
    """The interpreter of the shared environment below ``root``."""
    return root / "env" / "bin" / "python"


def is_complete(part: Path, made_from: object) -> bool:
    """Whether ``part`` was finished and from the same inputs."""
    try:
        return bool(json.loads((part / STAMP).read_text()) == made_from)
    except (OSError, ValueError):
        return False


def _finish(part: Path, made_from: object) -> None:
    (part / STAMP).write_text(json.dumps(made_from))


def _pip(python: Path, *arguments: str, what: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR:").strip() if errors else f"pip exited {done.returncode}"
        raise InstallError(f"{what}: {reason}")


def _site_packages(env: Path) -> Path:
    return env / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def link_package(site_packages: Path, package_root: Path = PACKAGE_ROOT) -> None:
    """Make ``hicache_fsm`` and its SGLang plugin entry point visible to the environment.

    A path file and a hand-written ``dist-info`` serve a checkout and an installed wheel alike, and need
    no build backend. The path comes last, so that what else lies in that folder shadows nothing.
    """
    (site_packages / "hicache_fsm_link.pth").write_text(f"{package_root}\n")
    info = site_packages / "hicache_fsm_link-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hicache-fsm-link\nVersion: 0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)


def install_env(root: Path) -> bool:
    """Make ``root/env``; False when it was there already. Raises ``InstallError``."""
    env = root / "env"
    pins = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    made_from = {"torch": TORCH, "pins": pins, "python": list(sys.version_info[:2])}
    if is_complete(env, made_from):
        link_package(_site_packages(env))  # the checkout may have moved
        return False
    shutil.rmtree(env, ignore_errors=True)
    venv.EnvBuilder(with_pip=True).create(env)
    python = env_python(root)
    # torch goes first, with its own choice of build, so that the pins below find theirs met
    _pip(python, TORCH, what=TORCH)
    _pip(python, "--no-deps", "-r", str(REQUIREMENTS), what=REQUIREMENTS.name)
    link_package(_site_packages(env))
    _finish(env, made_from)
    return True


def install_version(root: Path, version: str) -> bool:
    """Make ``root/<version>``; False when it was there already. Raises ``InstallError``."""
    part = root / version
    made_from = {"sglang": version, "python": list(sys.version_info[:2])}
    if is_complete(part, made_from):
        return False
    shutil.rmtree(part, ignore_errors=True)
    package = f"sglang=={version}"
    _pip(env_python(root), "--no-deps", "--target", str(part), package, what=package)
    _finish(part, made_from)
    return True


def install(root: Path, versions: Sequence[str] = DEFAULT_VERSIONS) -> list[str]:
    """Lay out ``versions`` and what they share below ``root``; the parts that had to be made.

    Raises ``ValueError`` for an unknown version, before anything is made, and ``InstallError``.
    """
    for version in versions:
        check_known(version)
    root.mkdir(parents=True, exist_ok=True)
    made = ["env"] if install_env(root) else []
    return made + [version for version in versions if install_version(root, version)]


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 when everything is there, 2 with one line on standard error otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m hicache_fsm.sglang.install", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--dir", type=Path, default=DEFAULT_ROOT, help="where to put it (default: .sglang)")
    parser.add_argument(
        "versions",
        nargs="*",
        default=list(DEFAULT_VERSIONS),
        metavar="VERSION",
        help=f"{', '.join(VERSIONS)} (default: {', '.join(DEFAULT_VERSIONS)})",
    )
    options = parser.parse_args(argv)
    try:
        made = install(options.dir.resolve(), options.versions)
    except (ValueError, InstallError, OSError, subprocess.CalledProcessError) as error:
        print(f"sglang harness: {error}", file=sys.stderr)
        return 2
    print(f"sglang harness: {'made ' + ', '.join(made) if made else 'complete'} in {options.dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
