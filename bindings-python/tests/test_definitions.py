"""The package has everything that the IDL defines, by the generated list of it."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import polyrank
import polyrank.distributed
import pytest

ROOT = Path(__file__).parents[2]
DEFINITIONS = json.loads((ROOT / "tests/generated/definitions.json").read_text())
STUB = (ROOT / "bindings-python/python/polyrank/_core.pyi").read_text()


def body_of(name: str) -> str:
    """What the stub says of a class."""
    found = re.search(rf"^class {name}[(:].*?(?=^\S|\Z)", STUB, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def fields_of(cls: type) -> dict[str, str]:
    """What the stub promises of the errors of a class: the types of its fields."""
    fields: dict[str, str] = {}
    for above in reversed(cls.__mro__):
        fields |= re.findall(r"^    (\w+): (.+)$", body_of(above.__name__), re.MULTILINE)
    return fields


def fail() -> Iterator[Callable[[], Any]]:
    """Calls that fail on one rank, each in its own way."""
    store, data = polyrank.HashStore(), np.ones(2)
    group = polyrank.ProcessGroup(store, 0, 1, timeout=60, group_name="that fails")
    yield polyrank.get_rank
    yield lambda: polyrank.ProcessGroup(store, -1, 1)
    yield lambda: store.wait(5)  # type: ignore[call-overload]
    yield lambda: store.wait(["missing"], 0.01)
    store.set("word", "text")
    yield lambda: store.add("word", 1)
    yield lambda: store.queue_pop("queue", False)
    yield lambda: polyrank.ProcessGroup(store, 0, 1, "unheard")
    yield lambda: polyrank.get_group_rank(group, 7)
    yield lambda: group.allreduce(data, polyrank.ReduceOp.BAND)
    yield lambda: polyrank.register_backend("tcp", lambda *_: None)
    yield lambda: polyrank.init_process_group("cpu:tcp", init_method="odd://")
    yield lambda: group.recv([data], 0, 1).wait(0.01)
    yield lambda: group.send([np.ones(3)], 0, 1).wait()
    group.recv([data], 0, 2)
    yield lambda: group.send([np.ones(2, np.int64)], 0, 2).wait()
    limited = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, timeout=0.05)
    yield lambda: limited.recv([data], 0).wait()
    sent = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1)
    received = sent.recv([data], 0)
    sent.abort()
    yield received.wait
    group.shutdown()
    yield lambda: group.allreduce(data)
    polyrank.init_process_group(store=store, rank=0, world_size=1)
    mesh = polyrank.DeviceMesh("cpu", [0], mesh_dim_names=["one"])
    yield lambda: polyrank.init_process_group(store=store, rank=0, world_size=1)
    yield lambda: mesh["another"]
    polyrank.destroy_process_group()


def errors() -> dict[str, Any]:
    """Errors that are raised, by the names of their classes."""
    raised = {}
    for call in fail():
        with pytest.raises(polyrank.PolyrankError) as caught:
            call()
        raised[type(caught.value).__name__] = caught.value
    return raised


@pytest.fixture(scope="module")
def raised() -> dict[str, Any]:
    return errors()


def has(module: Any, kind: str, name: str, raised: dict[str, Any]) -> bool:
    """Whether the package has it; what objects get when they are made is in the stub."""
    if kind in ("texts", "result", "part"):
        return True
    if kind == "text":
        return f'"{name.split(".")[1]}"' in STUB
    if kind == "error_field":
        owner, field = name.split(".")
        if owner in raised:
            return field in vars(raised[owner])
        return hasattr(module, owner) and field in fields_of(getattr(module, owner))
    missing = object()
    found = reduce(lambda of, part: getattr(of, part, missing), name.split("."), module)
    return found is not missing


def absent(
    module: Any, definitions: list[dict[str, Any]], raised: dict[str, Any]
) -> list[str]:
    return [
        name
        for it in definitions
        if it["python"] is not None
        for name in [it["python"], *it["python_aliases"]]
        if not has(module, it["kind"], name, raised)
    ]


@pytest.mark.parametrize("module", [polyrank, polyrank.distributed], ids=lambda it: it.__name__)
def test_every_definition_of_the_idl_is_in_the_package(module, raised):
    assert absent(module, DEFINITIONS, raised) == []
    assert len(DEFINITIONS) > 400


def test_errors_have_what_their_classes_promise(raised):
    assert len(raised) >= 15, sorted(raised)
    kinds = {"str": str, "int": int, "list[int]": list, "None": type(None)}
    for error in raised.values():
        for cls in type(error).__mro__[:-1]:
            for field, promised in fields_of(cls).items():
                expected = tuple(kinds[it] for it in promised.split(" | "))
                got = getattr(error, field)
                assert isinstance(got, expected), (type(error), cls, field, got)
        assert error.message and error.message in str(error)
        # What a program makes itself has them too.
        own = type(error)("own words")
        assert own.message == "own words"
    aborted = raised["AbortedError"]
    assert aborted.backend is None and aborted.why
    assert polyrank.ReconfiguredError("").why is None


def text_run_by(path: str, test: str) -> str:
    """The text of a test and of what it names in its file, also by way of others."""
    text = (ROOT / path).read_text()
    parts = {}
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        for name in (getattr(it, "name", getattr(it, "id", None)) for it in targets):
            if name is not None:
                parts[name] = node
    reached = [test]
    for name in reached:
        named = {
            getattr(it, field)
            for it in ast.walk(parts[name])
            # A variable, an argument, a text: functions are parameters by name.
            for field in {"id", "arg", "value"} & set(it._fields)
            if isinstance(getattr(it, field), str)
        }
        reached += sorted(named & set(parts) - set(reached))
    return "\n".join(ast.unparse(parts[name]) for name in reached)


def test_the_test_of_a_definition_runs_what_names_it():
    checked = 0
    for it in DEFINITIONS:
        path, _, test = (it["test"] or "").partition(": ")
        if path.endswith(".py") and test:
            spelt = [it["rust"], it["python"], it["node"], it["browser"], it["name"]]
            spelt += it["python_aliases"] + it["javascript_aliases"]
            names = {re.split(r"[.:]+", name)[-1] for name in spelt if name}
            names |= {name.split(".")[0] for name in spelt if name and "constructor" in it["name"]}
            words = set(re.findall(r"\w+", text_run_by(path, test)))
            assert names & words, it
            checked += 1
    assert checked > 100


def test_what_is_not_there_is_found(raised):
    one = {"python": "Work.wait_for_ever", "python_aliases": ["Work.wait"], "kind": "method"}
    field = {"python": "RankFailedError.weight", "python_aliases": [], "kind": "error_field"}
    another = {"python": "AbortedError.backend", "python_aliases": [], "kind": "error_field"}
    assert absent(polyrank, [one, field, another], raised) == [
        "Work.wait_for_ever", "RankFailedError.weight", "AbortedError.backend"
    ]
