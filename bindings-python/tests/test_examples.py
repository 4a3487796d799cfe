"""The Python programs of README and site: type-checked strictly, and run."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

from ranks import PATIENCE_S

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "bindings-python/README.md", "site/index.md", "site/concepts/choosing.md",
         "site/concepts/collectives.md", "site/concepts/debugging.md", "site/concepts/groups.md",
         "site/concepts/hooks.md", "site/concepts/logs.md", "site/concepts/members.md",
         "site/concepts/meshes.md",
         "site/concepts/own-backends.md", "site/concepts/reductions.md",
         "site/concepts/replicas.md",
         "site/concepts/transports.md", "site/concepts/windows.md", "site/start/launch.md",
         "site/start/python.md", "site/start/mpi.md", "site/start/nccl.md"]
# What the examples of a page take as given, before and behind them.
AROUND = {
    "site/concepts/debugging.md": (
        "",
        """
print(f"rank {pr.get_rank()} of {pr.get_world_size()}: {loss}")
pr.destroy_process_group()
""",
    ),
    "site/concepts/groups.md": (
        """
import numpy as np

weights = np.ones(4, np.float32)
""",
        """
print(weights[0])
""",
    ),
    "site/concepts/members.md": (
        """
import numpy as np

import polyrank as pr

store = pr.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
me, alive = 0, [0]
address, rank = f"127.0.0.1:{store.port}", 0
group = pr.ProcessGroup(store, 0, 1)
""",
        "",
    ),
    "site/concepts/replicas.md": (
        "",
        """
print([round(float(weight), 4) for weight in model["weights"]])
print([round(float(weight), 3) for weight in shared["weights"]])
""",
    ),
    "site/concepts/transports.md": (
        """
import numpy as np
import numpy.typing as npt
import polyrank

polyrank.init_process_group()
group = polyrank.default_group()
batches = [1.0, 2.0]

def backward(batch: float) -> npt.NDArray[np.float32]:
    return np.full((1024, 1024), batch * group.rank(), np.float32)
""",
        """
print(f"rank {group.rank()} of {group.size()}: {gradients[0, 0] / 2}")
polyrank.destroy_process_group()
""",
    ),
}
# How an example begins.
FENCE = "```py(?:thon)?"
# What the examples use of PyTorch, which is not installed here.
TORCH = """
class Tensor:
    def __dlpack__(self, *, stream: int | None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

def ones(size: int, device: str = ...) -> Tensor: ...
"""
# What they use of Ray, whose types take long to read.
RAY = """
from typing import Any

def init() -> None: ...
def remote(cls: type[Any]) -> Any: ...
def get(calls: list[Any]) -> list[Any]: ...
"""


def program(page):
    """All Python of a page: later examples go on where earlier ones ended."""
    text = (ROOT / page).read_text(encoding="utf-8")
    before, behind = AROUND.get(page, ("", ""))
    examples = re.findall(rf"^{FENCE}.*?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return "\n".join([before, *examples, behind])


def test_every_page_with_python_is_here():
    folders = [ROOT / "site", *(ROOT / "site" / name for name in ("start", "concepts", "demos"))]
    readmes = [ROOT / "README.md", ROOT / "bindings-python/README.md"]
    pages = [*readmes, *(page for folder in folders for page in folder.glob("*.md"))]
    found = [page for page in pages if re.search(FENCE, page.read_text(encoding="utf-8"))]
    assert sorted(str(page.relative_to(ROOT)) for page in found) == sorted(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_types(page, tmp_path):
    example = tmp_path / "example.py"
    example.write_text(program(page), encoding="utf-8")
    (tmp_path / "torch.pyi").write_text(TORCH, encoding="utf-8")
    (tmp_path / "ray.pyi").write_text(RAY, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(example)]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S * 3)
    assert checked.returncode == 0, checked.stdout.decode() + checked.stderr.decode()


@pytest.mark.parametrize(
    ("page", "result"),
    [
        ("README.md", "sum"),
        ("bindings-python/README.md", "average"),
        ("site/index.md", "sum"),
        ("site/concepts/collectives.md", "rows"),
        ("site/concepts/debugging.md", "quarter"),
        ("site/concepts/hooks.md", "hooks"),
        ("site/concepts/members.md", "members"),
        ("site/concepts/meshes.md", "meshes"),
        ("site/concepts/own-backends.md", "mine"),
        ("site/concepts/replicas.md", "replicas"),
        ("site/concepts/transports.md", "sum"),
        ("site/concepts/windows.md", "tasks"),
        ("site/start/python.md", "sum"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_runs(page, result, size):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", program(page)],
            env={**os.environ, **common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(size)
    ]
    printed = [rank.communicate(timeout=PATIENCE_S)[0].decode() for rank in ranks]
    if result == "replicas":
        # Each is a job of its own: three steps of 0.1; then two outer ones, by ten of 0.1, of
        # 0.7 (1 + 0.9) and 0.7 (1 + 0.9 (0.9 + 1)).
        steps, outer_steps = [[-0.3] * 4, [-3.227] * 4]
        assert printed == [f"{steps}\n{outer_steps}\n"] * size
        return
    if result == "members":
        assert printed == ["0 1\ntaken over: []\n"] * size
        return
    if result == "hooks":
        found = "ALLREDUCE of rank 0: element (1,) of input 0, of f64, is NaN"
        for ended, error in (text.splitlines() for text in printed):
            assert ended.startswith("ALLREDUCE #0: 0:00:00") and error == found
        return
    if result == "meshes":
        rows = 2 if size % 2 == 0 else 1
        places = np.arange(size).reshape(rows, -1)
        for rank, text in enumerate(printed):
            place = np.argwhere(places == rank)[0].tolist()
            total = float(places[:, place[1]].sum())
            assert text == f"rank {rank} stands at {place} and has {total}\n"
        return
    if result == "mine":
        assert printed == [f"mine: {float(sum(range(size)))}\n"] * size
        return
    if result == "rows":
        firsts = [0, 1, 5]
        everything = [rank for rank in range(size) for _ in range(rank + 1)]
        for rank, text in enumerate(printed):
            first, has = firsts[rank], f"rank {rank} has"
            before = (rank - 1) % size
            total = float(sum(range(before + 1)))
            expected = [f"{has} rows {first} to {first + 3 * rank}", f"{has} all of {everything}"]
            expected.append(f"rank {rank} got {total} from rank {before}")
            expected.append(f"rank {rank} is between {before} and {(rank + 1) % size}")
            assert text.splitlines() == expected
        return
    if result == "tasks":
        counts = [int(line.split()[-2]) for line in printed]
        assert sum(counts) == 100, printed
        return
    total = float(sum(range(size)))
    expected = {"sum": total, "average": total / size, "quarter": 0.25}[result]
    assert printed == [f"rank {rank} of {size}: {expected}\n" for rank in range(size)]
