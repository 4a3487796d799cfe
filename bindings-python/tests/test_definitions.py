"""The package has everything that the IDL defines, by the generated list of it."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

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


def has(module: Any, kind: str, name: str) -> bool:
    """Whether the package has it; what objects get when they are made is in the stub."""
    if kind in ("texts", "result", "part"):
        return True
    if kind == "text":
        return f'"{name.split(".")[1]}"' in STUB
    if kind == "error_field":
        owner, field = name.split(".")
        bodies = "".join(body_of(it.__name__) for it in getattr(module, owner).__mro__)
        return re.search(rf"^    {field}:", bodies, re.MULTILINE) is not None
    missing = object()
    found = reduce(lambda of, part: getattr(of, part, missing), name.split("."), module)
    return found is not missing


def absent(module: Any, definitions: list[dict[str, Any]]) -> list[str]:
    return [
        name
        for it in definitions
        if it["python"] is not None
        for name in [it["python"], *it["python_aliases"]]
        if not has(module, it["kind"], name)
    ]


@pytest.mark.parametrize("module", [polyrank, polyrank.distributed], ids=lambda it: it.__name__)
def test_every_definition_of_the_idl_is_in_the_package(module):
    assert absent(module, DEFINITIONS) == []
    assert len(DEFINITIONS) > 400


def test_what_is_not_there_is_found():
    one = {"python": "Work.wait_for_ever", "python_aliases": ["Work.wait"], "kind": "method"}
    field = {"python": "RankFailedError.weight", "python_aliases": [], "kind": "error_field"}
    assert absent(polyrank, [one, field]) == ["Work.wait_for_ever", "RankFailedError.weight"]
