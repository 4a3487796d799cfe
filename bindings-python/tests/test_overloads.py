"""Every form in which an operation can be called, and what wrong calls raise."""

import datetime
import decimal
import fractions
import inspect

import numpy as np
import pytest

import polyrank
from polyrank import ReduceOp


def every_form(here):
    group, size = here.group, float(here.size)

    def total(*arguments, **keywords):
        tensor = np.ones(3)
        group.allreduce(tensor, *arguments, **keywords).wait()
        return tensor.tolist()

    options = polyrank.AllreduceOptions()
    options.reduce_op = ReduceOp.MAX
    assert total() == [size] * 3
    assert total(ReduceOp.MAX) == [1.0] * 3
    assert total(op=ReduceOp.AVG, timeout=datetime.timedelta(seconds=20)) == [1.0] * 3
    assert total(ReduceOp.SUM, 20) == [size] * 3
    assert total(ReduceOp.SUM, timeout=20.5) == [size] * 3
    assert total(ReduceOp.SUM, None) == [size] * 3

    tensor = np.ones(3)
    group.allreduce([tensor]).wait()
    group.allreduce([tensor], options).wait()
    group.allreduce(tensors=[tensor], opts=options).wait()
    group.allreduce((tensor,), ReduceOp.SUM).wait()
    group.allreduce(tensor=tensor).wait()
    assert tensor.tolist() == [size**3] * 3

    root = polyrank.BroadcastOptions()
    root.root_rank = here.size - 1
    tensor = np.full(2, float(here.rank))
    group.broadcast([tensor], root).wait()
    assert tensor.tolist() == [size - 1] * 2
    for rank in (1, np.int64(1), np.uint8(1)):
        tensor = np.full(2, float(here.rank))
        group.broadcast(tensor, rank).wait()
        assert tensor.tolist() == [1.0] * 2
    group.broadcast(tensor, root=0, timeout=datetime.timedelta(seconds=9)).wait()

    outputs = [np.zeros(1) for _ in range(here.size)]
    mine = np.full(1, float(here.rank))
    group.allgather(outputs, mine).wait()
    group.allgather([outputs], [mine]).wait()
    group.allgather([outputs], [mine], polyrank.AllgatherOptions()).wait()
    flat = np.zeros(here.size)
    group.all_gather_single(flat, mine).wait()
    group._allgather_base(flat, mine).wait()
    assert flat.tolist() == [float(r) for r in range(here.size)]
    group.barrier(polyrank.BarrierOptions()).wait()
    group.barrier(opts=polyrank.BarrierOptions()).wait()


def test_every_form(trio):
    trio.run(every_form)


def wrong_calls(here):
    group, tensor = here.group, np.ones(2)
    wrong = [
        lambda: group.allreduce(),
        lambda: group.allreduce(3),
        lambda: group.allreduce("tensor"),
        lambda: group.allreduce(tensor, "SUM"),
        lambda: group.allreduce(tensor, ReduceOp.SUM, 1, 2),
        lambda: group.allreduce(tensor, oop=ReduceOp.SUM),
        lambda: group.allreduce([tensor, 3]),
        lambda: group.allreduce(tensor, tensor=tensor),
        lambda: group.broadcast(tensor),
        lambda: group.broadcast(tensor, "0"),
        lambda: group.broadcast(tensor, 0.0),
        lambda: group.broadcast(tensor, True),
        lambda: group.allreduce(np.array(["text"])),
        lambda: group.allreduce(np.array([object()])),
        lambda: group.allreduce(np.zeros(2, "datetime64[s]")),
        lambda: group.allreduce(b"bytes are not a tensor"),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError) as caught:
        group.allreduce(tensor, "SUM")
    message = str(caught.value)
    assert message.count("allreduce(") >= 3, message
    assert "op: ReduceOp = ReduceOp.SUM" in message, message
    assert "timeout: timedelta | float | None = None" in message, message
    with pytest.raises(TypeError, match="not int. A Tensor: a NumPy array, or anything with the"):
        group.allreduce(3)
    with pytest.raises(TypeError, match=r"^PrefixStore\(\) does not take \(int, str\)"):
        polyrank.PrefixStore(1, "store")
    for timeout in (-1, float("nan"), datetime.timedelta(seconds=-1)):
        with pytest.raises(ValueError):
            group.allreduce(tensor, timeout=timeout)
    with pytest.raises(polyrank.InvalidArgumentError, match="does not fit in 64 bits"):
        group.broadcast(tensor, 2**64)
    group.barrier().wait()
    assert tensor.tolist() == [1.0, 1.0]


class Only:
    """An integer that has no more than `__int__`, as those that pybind11 takes."""

    def __init__(self, number):
        self.number = number

    def __int__(self):
        return self.number


class Measured(Only):
    """One that is a real number besides."""

    def __float__(self):
        return self.number + 0.5

    def __eq__(self, other):
        return other == float(self)

    __hash__ = None


def integers(here):
    group, other = here.group, 1 - here.rank
    for source in (Only(1), decimal.Decimal(1), fractions.Fraction(1)):
        tensor = np.full(2, float(here.rank))
        group.broadcast(tensor, source).wait()
        assert tensor.tolist() == [1.0, 1.0]
    tensor = np.full(2, float(here.rank))
    sent = group.send([tensor.copy()], Only(other), Only(5))
    group.recv([tensor], Only(other), tag=Only(5)).wait()
    sent.wait()
    assert tensor.tolist() == [float(other)] * 2
    lossy = (1.0, np.float64(1), decimal.Decimal("0.5"), fractions.Fraction(1, 2), Measured(1))
    for value in (*lossy, Only(2**64), Only("1"), lambda: 1):
        with pytest.raises(polyrank.InvalidTypeError, match="broadcast"):
            group.broadcast(tensor, value)


def test_whole_numbers_of_any_class_are_integers(pair):
    pair.run(integers)


def test_wrong_calls_are_type_errors_that_list_the_forms(pair):
    pair.run(wrong_calls)


def test_options_have_defaults_and_take_keywords():
    options = polyrank.AllreduceOptions()
    assert options.reduce_op == ReduceOp.SUM
    assert options.timeout is None
    options.timeout = datetime.timedelta(seconds=3)
    assert options.timeout == datetime.timedelta(seconds=3)
    # A number of seconds is as good, and is not ignored.
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, timeout=30)
    for timeout in (3, 3.0, datetime.timedelta(seconds=3)):
        work = group.allreduce([np.ones(1)], polyrank.AllreduceOptions(timeout=timeout))
        assert work.timeout == datetime.timedelta(seconds=3)
    with pytest.raises(ValueError, match="timeout.* that is not negative"):
        group.allreduce([np.ones(1)], polyrank.AllreduceOptions(timeout=-1))
    assert polyrank.ReduceOptions(root_rank=2).root_rank == 2


def test_signatures_name_parameters_and_defaults():
    shown = inspect.signature(polyrank.all_reduce)
    assert list(shown.parameters) == ["tensor", "op", "group", "async_op", "compress"]
    assert shown.parameters["group"].default is None
    assert shown.parameters["async_op"].default is False
    # An operator is not a literal: the signature only says that there is a default.
    assert shown.parameters["op"].default is ...
    assert "`op` is `ReduceOp.SUM` by default." in polyrank.all_reduce.__doc__
    codec = inspect.signature(polyrank.all_gather_object).parameters["codec"]
    assert codec.default == "cbor"
    # The longest of several forms, if the others are its beginning; all are in the text.
    several = inspect.signature(polyrank.Store.wait)
    assert list(several.parameters) == ["self", "keys", "timeout"]
    assert "- `wait(" in polyrank.Store.wait.__doc__
    for name in ("broadcast", "reduce", "all_gather", "send", "barrier", "isend"):
        named = inspect.signature(getattr(polyrank, name)).parameters
        assert named and "positional" not in named, name
