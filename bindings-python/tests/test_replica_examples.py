"""The examples of replicas that average seldom, on short settings; and what they compute."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

DEMO = pathlib.Path(__file__).parents[2] / "tests" / "demo"
sys.path.append(str(DEMO))
import transformer  # noqa: E402

PATIENCE_S = 120

#: The kernel of others does not say what was sent, or not there.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts bytes as Linux does")


def table(program, *words):
    """What the program's table has, by method and column."""
    command = [sys.executable, str(DEMO / program), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("[replica")]
    assert all("the same bits" in line for line in lines[1:])
    return {line.split()[0]: line.split() for line in lines[1:]}


def number(text):
    return float(text.replace(",", ""))


def test_digits():
    rows = table("digits_replicas.py", "--steps", "100", "--sync-every", "10")
    # A tenth of the messages, and heartbeats, whose bytes depend on the time that passes.
    sent = {method: number(row[3]) for method, row in rows.items()}
    assert sent["parallel"] > 2600 and sent["diloco"] < 0.3 * sent["parallel"]
    assert all(float(row[2]) > 0.9 for row in rows.values()), rows
    assert float(rows["diloco"][1]) < float(rows["local-sgd"][1])


def test_text():
    words = ["--steps", "24", "--sync-every", "8", "--width", "40", "--layers", "2"]
    words += ["--batch", "8", "--context", "32", "--rate", "0.01"]
    rows = table("text_replicas.py", *words, "parallel", "diloco", "diloco-int8", "streaming")
    loss = {method: float(row[2]) for method, row in rows.items()}
    # Bytes of which nothing is known have ln 256 = 5.5.
    assert all(one < 4.5 for one in loss.values()), loss
    sent = {method: number(row[3]) for method, row in rows.items()}
    assert sent["diloco"] < sent["parallel"] / 6
    assert sent["diloco-int8"] < sent["diloco"] / 2
    # One of all bytes for each of the 24 steps, of 4 bytes each.
    assert sent["parallel"] > 4 * number(rows["parallel"][1])


@pytest.mark.parametrize("program", ["digits_replicas.py", "text_replicas.py"])
def test_help_and_what_cannot_be(program):
    command = [sys.executable, str(DEMO / program)]
    said = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "streaming: as diloco-int8" in " ".join(said.split()) and "--sync-every" in said
    for words, text in ((["dilocco"], "unknown methods: dilocco"),
                        (["--steps", "5"], "--steps must be a multiple of --sync-every")):
        ended = subprocess.run([*command, *words], capture_output=True, text=True)
        assert ended.returncode == 2 and text in " ".join(ended.stderr.split())


def test_gradients_by_differences():
    """Along a direction, the loss changes as the gradient says."""
    rng = np.random.default_rng(0)
    parameters = transformer.parameters_of(rng, 20, 2, 9, np.float64)
    for values in parameters.values():
        values += rng.standard_normal(values.shape) * 0.3
    tokens = rng.integers(0, 256, (3, 9))
    _, gradients = transformer.loss_and_gradients(parameters, tokens, 5)
    assert gradients.keys() == parameters.keys()
    for name, values in parameters.items():
        direction, far = rng.standard_normal(values.shape), 1e-6
        losses = []
        for sign in (1, -1):
            moved = parameters | {name: values + sign * far * direction}
            losses.append(transformer.loss_and_gradients(moved, tokens, 5, False)[0])
        slope = (losses[0] - losses[1]) / (2 * far)
        np.testing.assert_allclose((gradients[name] * direction).sum(), slope, rtol=1e-5, atol=1e-8)


def test_the_text_example_has_a_million_parameters():
    rng = np.random.default_rng(0)
    assert sum(it.size for it in transformer.parameters_of(rng, 160, 4, 96).values()) > 1_000_000
