"""The conformance cases in Python: one rank of a group that `polyrank run` starts.

README.md says how a case is read. Knows nothing of how a collective is run.
"""

import json
import os
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import polyrank as pr
from device import OnDevice
from lists import lists

FILE = json.loads((Path(__file__).parent / "cases.json").read_text())
UNTOUCHED = 0xA5
DTYPES = {
    "bool": np.bool_, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16,
    "u32": np.uint32, "i32": np.int32, "u64": np.uint64, "i64": np.int64, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip


class Slot:
    """A tensor, and the bytes that its memory must hold afterwards."""

    def __init__(self, case, before, after):
        self.memory, self.tensor = place(case, before)
        self.expected = bytes(place(case, after)[0])

    def difference(self):
        """Where the memory is not as expected; `None` if it is."""
        got = bytes(self.memory)
        if got == self.expected:
            return None
        at = next(i for i, byte in enumerate(got) if byte != self.expected[i])
        width = self.tensor.itemsize
        start = at // width * width
        here = slice(start, start + width)
        return f"byte {at} is of {got[here].hex()}, expected {self.expected[here].hex()}"


def place(case, data):
    """Memory and a tensor in it that has these elements."""
    dtype = np.dtype(DTYPES[case.dtype])
    step = 2 if case.strided else 1
    memory = bytearray([UNTOUCHED]) * (len(data) * step)
    tensor = np.frombuffer(memory, dtype)[::step]
    # Through bytes: a bool of a5 is not a value.
    tensor.view(f"V{dtype.itemsize}")[:] = np.frombuffer(data, f"V{dtype.itemsize}")
    return memory, tensor


class Case:
    """One call, as this rank sees it."""

    def __init__(self, row, rank, world):
        form, dtype, self.op, self.root, self.elements, self.strided, self.uneven = row
        self.form = FILE["forms"][form]
        self.facts = FILE["collectives"][self.form["collective"]]
        self.dtype = dtype or "u8"
        self.rank, self.world = rank, world
        words = [self.form["id"], self.dtype, self.op, f"root {self.root}"]
        words += [f"{self.elements} elements", self.strided and "strided", self.uneven and "uneven"]
        self.name = ", ".join(word for word in words if word)
        self.reduction = [1, ""]
        reduced = {"scan": rank + 1, "exscan": rank}.get(self.form["collective"])
        if reduced is not None:
            self.reduction = [1, FILE["prefixes"][self.op][self.dtype].get(str(reduced))]
        elif self.facts["reduces"]:
            self.reduction = FILE["reductions"][self.op][self.dtype][str(world)]

    def sends(self):
        """What this rank puts in, block by block."""
        blocks = {"None": 1, "One": 1, "All": self.world}.get(self.facts["input"], 0)
        if self.facts["output"] == "None":
            blocks = 0
        if self.facts["input"] == "AllAtRoot" and self.rank == self.root:
            blocks = self.world
        if self.facts["input"] in ("None", "One"):
            own = self.length(self.rank, self.rank)
            return [self.data(self.rank, 0, own)] * blocks
        return [self.data(self.rank, to, self.length(self.rank, to)) for to in range(blocks)]

    def receives(self):
        """What this rank must get, block by block."""
        output, rank = self.facts["output"], self.rank
        block = rank if self.facts["input"].startswith("All") else 0
        if output == "None" or (output.endswith("AtRoot") and rank != self.root):
            return []
        if output.startswith("All"):
            senders = range(self.world)
            return [self.data(sender, block, self.length(sender, rank)) for sender in senders]
        if self.facts["reduces"] and self.reduction[1] is None:
            return self.sends()
        if self.facts["reduces"]:
            return [self.cut(self.reduction[1], 0, block, self.length(rank, rank))]
        return [self.data(self.root, block, self.length(self.root, rank))]

    def length(self, sender, to):
        """Elements of what a rank has for another."""
        more = to
        if self.facts["sizes"] == "Equal":
            more = 0
        elif self.facts["sizes"] == "Pairwise":
            more = sender + 2 * to
        elif self.facts["output"].startswith("All"):
            more = sender
        return self.elements + (more % 3 if self.uneven else 0)

    def data(self, rank, block, elements):
        """The input of a rank that is its block `block`."""
        pattern = FILE["dtypes"][self.dtype]["inputs"][str(self.reduction[0])]
        return self.cut(pattern, rank * FILE["rank_step"], block, elements)

    def cut(self, pattern, phase, block, elements):
        """So many elements of a periodic pattern."""
        width, pattern = FILE["dtypes"][self.dtype]["bytes"], bytes.fromhex(pattern)
        start = (phase + block * FILE["block_step"]) % FILE["period"] * width
        end = start + elements * width
        return (pattern * (end // len(pattern) + 1))[start:end]

    def slots(self):
        """The tensors of one operation by role, as the form joins them."""
        sends, receives = self.sends(), self.receives()
        said = {parameter["role"] for parameter in self.form["parameters"]}
        if "InOut" in said:
            after = receives or sends
            return {"InOut": [Slot(self, sends[0], after[0])]} if sends else {}
        if "FlatIn" in said:
            sends = [b"".join(sends)] if sends else []
        if "FlatOut" in said:
            receives = [b"".join(receives)] if receives else []
        blank = [bytes([UNTOUCHED]) * len(data) for data in receives]
        return {
            "In": [Slot(self, data, data) for data in sends],
            "Out": [Slot(self, *data) for data in zip(blank, receives)],
        }


def nested(slots, parameter, blocks):
    """The tensors as deep in lists as the parameter has them."""
    tensors = [slot.tensor for slot in slots]
    if blocks == "One":
        value, deep = (tensors[0] if tensors else None), 0
    else:
        value, deep = tensors, 1
    if parameter["depth"] > deep:
        return [value] if tensors else []
    return value


def arguments(case, operations):
    """The arguments of the call, those that may be left out by name."""
    positional, keywords = [], {}
    for parameter in case.form["parameters"]:
        value = argument(case, operations, parameter)
        if parameter.get("optional") or keywords:
            keywords[parameter["name"]] = value
        else:
            positional.append(value)
    return positional, keywords


def argument(case, operations, parameter):
    """The value of one parameter."""
    role = parameter["role"]
    if role in ("In", "Out", "InOut", "FlatIn", "FlatOut"):
        side = role.removeprefix("Flat")
        fact = case.facts["input" if side == "In" else "output"]
        blocks = "All" if fact.startswith("All") and not role.startswith("Flat") else "One"
        values = [nested(slots.get(side, []), parameter, blocks) for slots in operations]
        if not case.form["coalesced"]:
            return values[0]
        # As in c10d, several lists of outputs are one for each rank.
        return [list(rank) for rank in zip(*values)] if blocks == "All" else values
    if role == "Options":
        fields = {n: plain(case, r) for n, r in parameter["fields"].items()}
        return getattr(pr, parameter["type"])(**fields)
    return plain(case, role)


def plain(case, role):
    """The value of a parameter or field that is not a tensor."""
    if role == "Op":
        is_premul = case.op == "PREMUL_SUM"
        return pr.premul_sum(FILE["factor"]) if is_premul else getattr(pr.ReduceOp, case.op)
    if role in ("Root", "GlobalRoot"):
        return case.root
    peers = range(case.world) if case.uneven else []
    if role == "OutSplits":
        return [case.length(peer, case.rank) for peer in peers]
    return [case.length(case.rank, peer) for peer in peers]


def run(group, case, device):
    """What differs after the call, if anything does."""
    operations = [case.slots() for _ in range(2 if case.form["coalesced"] else 1)]
    if device:
        device.put(operations)
    positional, keywords = arguments(case, operations)
    owner = group if case.form["place"] == "ProcessGroup" else pr
    refused = device is not None and device.refuses(case)
    try:
        work = getattr(owner, case.form["method"])(*positional, **keywords)
        if work is not None:
            work.wait()
    except pr.UnsupportedError:
        if refused:
            return None
        raise
    if refused:
        return "was not refused"
    if device:
        device.get(operations)
    for slots in operations:
        for side, those in slots.items():
            for at, slot in enumerate(those):
                difference = slot.difference()
                if difference:
                    return f"{side} {at}: {difference}"
    return None


def main():
    """Runs the cases of this world; the exit code is 0 if all are as they should be."""
    pr.init_process_group(os.environ.get("POLYRANK_TEST_BACKEND"))
    group = pr.group.WORLD
    rank, world = pr.get_rank(), pr.get_world_size()
    failed = 0
    device = OnDevice.named(os.environ.get("POLYRANK_TEST_DEVICE"), rank)
    cases = [Case(row, rank, world) for row in FILE["pairwise"][str(world)]]
    cases = [case for case in cases if device is None or device.takes(case)]
    for case in cases:
        difference = run(group, case, device)
        if difference:
            failed += 1
            print(f"FAILED {case.name}: rank {rank}, {difference}", flush=True)
    passed = len(cases) - failed
    for difference in [] if device else lists(group):
        failed += 1
        print(f"FAILED {difference} (rank {rank})", flush=True)
    print(f"Python rank {rank} of {world}: {passed} passed, {failed} failed", flush=True)
    pr.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
