"""Writes `cases.json`, the conformance cases that every language runs, from the IDL's model.

The forms of the calls, the element types and the operators are the model's (`cargo xtask model`);
what reductions give is NumPy's answer. README.md says how a case is read. Knows nothing of
polyrank's own arithmetic.

    python tests/cases/generate.py [--check]
"""

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from pairwise import pairwise

HERE = Path(__file__).parent
FILE = HERE / "cases.json"

# Thirteen is prime: blocks and segments that change places are seen, whatever their sizes are.
# Any product of eight neighbours is exact in every type.
NUMBERS = [1, -2, 3, 1, -1, 2, 0, 1, -3, 1, -1, 2, 1]
RANK_STEP, BLOCK_STEP = 3, 5
FACTOR = 0.5
WORLDS = [1, 2, 3, 4, 5, 8]
PAIRWISE_WORLDS = [1, 2, 3, 4, 5, 8]
# None, one, less than there are ranks, odd; the last is more than a segment of 256 KiB.
ELEMENTS = [0, 1, 3, 997]
LARGE = 70_001

NUMPY_TYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16,
    "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip
REDUCTIONS = {
    "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor, "PREMUL_SUM": np.add,
    "LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor,
}  # fmt: skip
# What a logical reduction of bool is: NumPy's own reductions of bool.
TENSORS = ("In", "Out", "InOut", "FlatIn", "FlatOut")
PASSED = (*TENSORS, "Root", "GlobalRoot", "Op", "InSplits", "OutSplits")


def model(name):
    """An item of the IDL's model."""
    command = ["cargo", "xtask", "model", name]
    found = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE)
    return json.loads(found.stdout)


def elements(dtype, phases, scale=1):
    """The numbers at these phases as elements of the type."""
    numbers = np.array([NUMBERS[phase % len(NUMBERS)] for phase in phases]) * scale
    kind = dtype["class"]
    if kind == "bool":
        return numbers != 0
    if kind == "complex":
        return (numbers - 1j * numbers).astype(NUMPY_TYPES[dtype["name"]])
    if dtype["name"].startswith("u"):
        numbers = np.abs(numbers)
    return numbers.astype(NUMPY_TYPES[dtype["name"]])


def hexadecimal(array):
    """The bytes of the elements, little-endian."""
    return array.astype(array.dtype.newbyteorder("<")).tobytes().hex()


def scale_of(dtype, op, world):
    """What the inputs are multiplied with, so that every result is exact."""
    is_rounded = dtype["class"] in ("float", "complex")
    return world if op == "AVG" and is_rounded else 1


def reduction(dtype, op, world):
    """One period of what reducing over `world` ranks gives, block 0."""
    phases = range(len(NUMBERS))
    scale = scale_of(dtype, op, world)
    ranks = [
        elements(dtype, [phase + rank * RANK_STEP for phase in phases], scale)
        for rank in range(world)
    ]
    if op == "PREMUL_SUM":
        ranks = [rank * rank.dtype.type(FACTOR) for rank in ranks]
    result = REDUCTIONS[op].reduce(np.stack(ranks), axis=0)
    if op == "AVG":
        quotient = result / world
        result = np.trunc(quotient) if dtype["class"] == "integer" else quotient
    return result.astype(NUMPY_TYPES[dtype["name"]])


def prefix(dtype, op, count):
    """One period of what reducing over the first `count` ranks gives, with inputs of scale 1."""
    phases = range(len(NUMBERS))
    starts = [rank * RANK_STEP for rank in range(count)]
    ranks = [elements(dtype, [phase + start for phase in phases]) for start in starts]
    if op == "PREMUL_SUM":
        ranks = [rank * rank.dtype.type(FACTOR) for rank in ranks]
    result = REDUCTIONS[op].reduce(np.stack(ranks), axis=0)
    if op == "AVG" and dtype["class"] == "integer":
        result = np.trunc(result / count)
    elif op == "AVG" and dtype["class"] == "complex":
        # Parts on their own: a complex quotient may round otherwise.
        parts = result.view(result.real.dtype)
        result = (parts / parts.dtype.type(count)).view(result.dtype)
    elif op == "AVG":
        result = result / result.dtype.type(count)
    return result.astype(NUMPY_TYPES[dtype["name"]])


def depth(kind):
    """How deep the lists of a parameter's tensors are."""
    if kind["kind"] == "Nullable":
        return depth(kind["of"])
    return 1 + depth(kind["of"]) if kind["kind"] == "Sequence" else 0


def parameter(given, options, coalesced):
    """What a runner must know of a parameter; `None` if it leaves it out."""
    role, name = given["role"], given["name"]
    if role == "Options":
        members = {m["name"]: m["role"] for m in options(given["type"]["of"])}
        fields = {name: role for name, role in members.items() if role in PASSED}
        return {"role": role, "name": name, "type": given["type"]["of"], "fields": fields}
    if role not in PASSED:
        return None
    wanted = {"role": role, "name": name, "optional": given["optional"]}
    if role in TENSORS:
        wanted["depth"] = depth(given["type"]) - coalesced
    return wanted


def forms(collectives):
    """Every way to write each collective: the overloads of the group's and the free functions."""
    found, seen = [], set()
    known = {}

    def options(name):
        if name not in known:
            item = model(name)
            known[name] = item["members"]
            if item["inherits"]:
                known[name] = [*options(item["inherits"]), *known[name]]
        return known[name]

    for place, key in (("ProcessGroup", "methods"), ("distributed", "functions")):
        for method in model(place)[key]:
            if not method["collective"] or method["common"]["unbuilt"]:
                continue
            for overload in method["overloads"]:
                parameters = [
                    parameter(given, options, method["coalesced"])
                    for given in overload["parameters"]
                ]
                parameters = [wanted for wanted in parameters if wanted]
                if any(wanted["role"] == "GlobalRoot" for wanted in parameters):
                    parameters = [wanted for wanted in parameters if wanted["role"] != "Root"]
                names = ", ".join(wanted["name"] for wanted in parameters)
                form = {
                    "id": f"{place}.{method['name']}({names})",
                    "place": place,
                    "method": method["name"],
                    "collective": method["collective"],
                    "coalesced": method["coalesced"],
                    "parameters": parameters,
                }
                if form["id"] not in seen:
                    seen.add(form["id"])
                    found.append(form)
    assert {form["collective"] for form in found} == set(collectives)
    return found


def roles(form):
    """The roles of everything that a call of this form can say."""
    said = set()
    for wanted in form["parameters"]:
        said.add(wanted["role"])
        said.update(wanted.get("fields", {}).values())
    return said


def axes(form, facts, dtypes, ops, world):
    """What each axis of a case may be for this form."""
    said = roles(form)
    rooted = facts["rooted"] and said & {"Root", "GlobalRoot"}
    is_flat, splits = said & {"FlatIn", "FlatOut"}, said & {"InSplits"}
    uneven = facts["sizes"] != "Equal" and (splits or not is_flat)
    carries = facts["input"] != "None" or facts["output"] != "None"
    one_op = ["SUM"] if facts["reduces"] else [None]
    return {
        "dtype": [dtype["name"] for dtype in dtypes] if carries else [None],
        "op": [op["name"] for op in ops] if facts["reduces"] and "Op" in said else one_op,
        "root": list(range(world)) if rooted else [0],
        "elements": [*ELEMENTS, LARGE] if carries else [0],
        "strided": [0, 1] if carries else [0],
        "uneven": [0, 1] if uneven else [0],
    }


def cases():
    """The whole file."""
    # Functions and pairs of elements have tests of their own.
    ops = [op for op in model("reduce_ops") if not op["custom"] and not op["pairs"]]
    dtypes = model("dtypes")
    facts = {
        found["name"]: {
            key: found[key] for key in ("input", "output", "sizes", "reduces", "rooted")
        }
        for found in model("collectives")
    }
    ways = forms(facts)
    supported = {op["name"]: set(op["dtypes"]) for op in ops}

    def is_valid(case):
        return case.get("op") is None or case.get("dtype") in {None, *supported[case["op"]]}

    pairs = {}
    for world in PAIRWISE_WORLDS:
        choices = [axes(form, facts[form["collective"]], dtypes, ops, world) for form in ways]
        chosen = pairwise(choices, is_valid)
        pairs[world] = [[case[axis] for axis in ("form", *choices[0])] for case in chosen]
    phases = range(len(NUMBERS))
    return {
        "period": len(NUMBERS),
        "rank_step": RANK_STEP,
        "block_step": BLOCK_STEP,
        "factor": FACTOR,
        "worlds": WORLDS,
        "elements": ELEMENTS,
        "large": LARGE,
        "collectives": facts,
        "dtypes": {
            dtype["name"]: {
                "number": dtype["number"],
                "bytes": dtype["size_bytes"],
                "inputs": {
                    scale: hexadecimal(elements(dtype, phases, scale))
                    for scale in sorted({scale_of(dtype, "AVG", world) for world in WORLDS} | {1})
                },
            }
            for dtype in dtypes
        },
        "reductions": {
            op["name"]: {
                dtype["name"]: {
                    world: [
                        scale_of(dtype, op["name"], world),
                        hexadecimal(reduction(dtype, op["name"], world)),
                    ]
                    for world in WORLDS
                }
                for dtype in dtypes
                if dtype["name"] in op["dtypes"]
            }
            for op in ops
        },
        "prefixes": prefixes(ops, dtypes),
        "forms": ways,
        "pairwise": pairs,
    }


def prefixes(ops, dtypes):
    """What the first ranks reduce to, by operator, dtype and their number."""
    return {
        op["name"]: {
            dtype["name"]: {
                count: hexadecimal(prefix(dtype, op["name"], count))
                for count in range(1, max(WORLDS) + 1)
            }
            for dtype in dtypes
            if dtype["name"] in op["dtypes"]
        }
        for op in ops
    }


def lines(value, level):
    """JSON with a line for each item of the outer `level` levels."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    if level == 0 or not any(isinstance(item, (dict, list)) for item in inner):
        return json.dumps(value)
    if isinstance(value, dict):
        items = [f"{json.dumps(str(key))}: {lines(item, level - 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + "\n}"
    return "[\n" + ",\n".join(lines(item, level - 1) for item in value) + "\n]"


def main():
    """Writes the file, or compares it."""
    text = lines(cases(), 3) + "\n"
    if sys.argv[1:] == ["--check"]:
        if FILE.read_text() == text:
            return 0
        print(f"{FILE.name} is stale: run python tests/cases/generate.py", file=sys.stderr)
        return 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
