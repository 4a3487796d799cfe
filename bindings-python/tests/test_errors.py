"""Exception classes: what they are, what they carry, that they survive pickling."""

import copy
import pickle

import pytest

import polyrank

BASES = {
    "InvalidArgumentError": ValueError,
    "InvalidTypeError": TypeError,
    "NotInitializedError": ValueError,
    "UnsupportedError": NotImplementedError,
    "UnsupportedDTypeError": TypeError,
    "CollectiveTimeoutError": TimeoutError,
    "WaitTimeoutError": TimeoutError,
    "RendezvousTimeoutError": TimeoutError,
    "StoreTimeoutError": TimeoutError,
    "MonitoredBarrierError": TimeoutError,
    "MessageSizeError": ValueError,
    "MessageDTypeError": TypeError,
    "RankFailedError": RuntimeError,
    "CollectiveMismatchError": RuntimeError,
}


@pytest.mark.parametrize("name", BASES)
def test_classes(name):
    error = getattr(polyrank, name)
    assert issubclass(error, BASES[name])
    assert issubclass(error, polyrank.PolyrankError)
    assert issubclass(error, RuntimeError)
    assert error.__doc__
    assert error.__module__ == "polyrank"


def test_every_error_has_the_common_attributes():
    with pytest.raises(polyrank.NotInitializedError) as caught:
        polyrank.get_rank()
    error = caught.value
    assert error.kind == "NotInitialized"
    assert error.rank is None and error.collective is None
    assert error.seq is None and error.group is None
    assert "init_process_group" in str(error)


def test_what_is_given_wrongly_is_an_error_of_the_package():
    outside = polyrank.distributed.GroupMember.NON_GROUP_MEMBER
    with pytest.raises(polyrank.InvalidTypeError, match="as devices, not int"):
        polyrank.distributed.register_backend("zz", lambda *given: None, devices=5)
    assert "zz" not in polyrank.distributed.Backend.backend_list
    for call in (polyrank.process_group, polyrank.get_backend):
        with pytest.raises(polyrank.InvalidGroupError, match="not a member"):
            call(outside)


def test_errors_survive_pickling():
    store = polyrank.HashStore()
    with pytest.raises(polyrank.StoreTimeoutError) as caught:
        store.wait(["missing"], 0.01)
    for twin in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert type(twin) is polyrank.StoreTimeoutError
        assert str(twin) == str(caught.value)
        assert twin.kind == "StoreTimeout"
        assert twin.keys == caught.value.keys


def test_operators_and_dtypes_are_values():
    for op in (polyrank.ReduceOp.SUM, polyrank.ReduceOp.BXOR, polyrank.premul_sum(0.5)):
        twin = pickle.loads(pickle.dumps(op))
        assert twin == op and hash(twin) == hash(op)
    assert polyrank.ReduceOp.SUM != polyrank.ReduceOp.MAX
    assert polyrank.premul_sum(1.0) != polyrank.premul_sum(2.0)
    assert polyrank.premul_sum(2.0).factor == 2.0
    assert polyrank.ReduceOp(polyrank.ReduceOp.MIN) == polyrank.ReduceOp.MIN
    numbers = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
    assert [getattr(polyrank.ReduceOp, name).value for name in numbers] == list(range(9))
    dtype = polyrank.DType("bf16")
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    assert dtype.itemsize == 2
    with pytest.raises(ValueError, match="expected one of"):
        polyrank.DType("f8")


def test_results_are_members_of_enums():
    with polyrank.ProcessGroup(polyrank.HashStore(), 0, 1) as group:
        assert group.get_error() is polyrank.WorkResult.SUCCESS
        kind = group.get_backend("cpu").backend_type
        assert kind is polyrank.BackendType.GLOO and kind.value == 1
