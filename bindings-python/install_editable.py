"""Installs the package into the environment of this Python, as it lies in its folder.

Cargo has built the native half and `cargo xtask python` has put it in its place; here nothing is
compiled. maturin writes the metadata, as for a wheel, and pip installs it with the command.
"""

import base64
import csv
import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def wheel_of(metadata: Path, folder: Path) -> Path:
    """A wheel in `folder` with `metadata`, and a path file that leads to the package's modules."""
    lines = (metadata / "WHEEL").read_text().splitlines()
    tag = next(line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: "))
    contents = {"polyrank.pth": f"{PACKAGE / 'python'}\n".encode()}
    for file in sorted(metadata.rglob("*")):
        if file.is_file() and file.name != "RECORD":
            name = f"{metadata.name}/{file.relative_to(metadata).as_posix()}"
            contents[name] = file.read_bytes()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{metadata.name}/RECORD", "", ""])
    contents[f"{metadata.name}/RECORD"] = record.getvalue().encode()
    wheel = folder / f"{metadata.name.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return wheel


def main() -> None:
    """Writes the wheel and installs it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        maturin = [sys.executable, "-m", "maturin", "pep517", "write-dist-info"]
        words = ["--metadata-directory", name, "--interpreter", sys.executable]
        subprocess.run([*maturin, *words], cwd=PACKAGE, check=True)
        (metadata,) = folder.glob("*.dist-info")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel = str(wheel_of(metadata, folder))
        subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", wheel], check=True)


if __name__ == "__main__":
    main()
