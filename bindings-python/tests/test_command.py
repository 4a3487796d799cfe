"""The command `polyrank` as the package brings it, and the program of the README under it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import polyrank

PATIENCE_S = 120
README = Path(__file__).parents[1] / "README.md"
WAYS = {
    "script": [str(Path(sys.executable).with_name("polyrank"))],
    "module": [sys.executable, "-m", "polyrank"],
}


def run(words, **options):
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.parametrize("way", WAYS)
def test_all_subcommands_are_there(way):
    assert run([*WAYS[way], "--version"]) == f"polyrank {polyrank.__version__}\n"
    for subcommand in ("run", "store", "bench", "predict"):
        assert f"Usage: polyrank {subcommand}" in run([*WAYS[way], subcommand, "--help"])


@pytest.mark.parametrize("way", [*WAYS, "run module"])
def test_the_readme_is_true(tmp_path, way):
    blocks = re.findall(r"```(\w+)\n(.*?)```", README.read_text(), re.DOTALL)
    program = next(text for language, text in blocks if language == "python")
    expected = next(text for language, text in blocks if language == "text")
    (tmp_path / "train.py").write_text(program)
    command = {**WAYS, "run module": [sys.executable, "-m", "polyrank.run"]}[way]
    words = ["-n", "3", "train.py"] if way == "run module" else ["run", "-n", "3", "train.py"]
    assert sorted(run([*command, *words], cwd=tmp_path).splitlines()) == expected.splitlines()


@pytest.mark.parametrize("way", WAYS)
def test_a_store_says_where_it_is_and_ends_when_asked(way):
    words = [*WAYS[way], "store", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        try:
            served.stdout.readline()
            port = int(served.stdout.readline().strip().removeprefix("tcp://127.0.0.1:"))
            store = polyrank.TCPStore("127.0.0.1", port, is_master=False)
            store.set("key", b"value")
            assert store.get("key") == b"value"
            served.terminate()
            assert served.wait(PATIENCE_S) == 0
        finally:
            served.kill()


@pytest.mark.parametrize("way", WAYS)
def test_rust_ranks_of_the_benchmark_are_this_command_again(tmp_path, way):
    results = tmp_path / "results.json"
    words = ["bench", "allreduce", "-n", "2", "-b", "4", "-e", "4", "--json", str(results)]
    run([*WAYS[way], *words, "--turns", "2", "--iters", "2", "--warmup", "0"])
    (case,) = json.loads(results.read_text())["cases"]
    assert case["results"][0]["wrong"] == 0


def test_predictions_need_no_ranks():
    words = ["predict", "allreduce", "--ranks", "1024", "--bytes", "1M", "--json"]
    answer = run([*WAYS["module"], *words])
    assert json.loads(answer)
