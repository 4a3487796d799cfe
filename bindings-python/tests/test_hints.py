"""Hints of a group, and what is done with a group that was destroyed."""

import numpy as np
import polyrank
import pytest
from polyrank import distributed as dist

FINE = np.float32(1 + 1 / 512)
"""A number that bf16 does not keep."""


@pytest.fixture
def group():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1)
    yield group
    group.shutdown()


def summed(group):
    tensor = np.full(3, FINE)
    group.allreduce([tensor]).wait()
    return list(tensor)


def test_a_hint_holds_for_what_does_not_say_otherwise(group):
    assert group.hints.compress is None
    assert summed(group) == [FINE] * 3
    group.set_hints(polyrank.GroupHints(compress="bf16"))
    assert group.hints.compress == "bf16"
    assert summed(group) == [1] * 3
    whole = np.array([2**40 + 1])
    group.allreduce([whole]).wait()
    assert whole[0] == 2**40 + 1
    as_it_is = np.full(1, FINE)
    group.allreduce([as_it_is], polyrank.AllreduceOptions(compress="none")).wait()
    assert as_it_is[0] == FINE
    kept = group.hints
    group.set_hints(polyrank.GroupHints())
    assert group.hints.compress is None
    assert summed(group) == [FINE] * 3
    group.set_hints(kept)
    assert group.hints.compress == "bf16"


def test_what_there_is_not_is_refused(group):
    known = "'bf16', 'f16', 'int8' or 'none', not 'f8'"
    with pytest.raises(polyrank.InvalidArgumentError, match=known):
        group.set_hints(polyrank.GroupHints(compress="f8"))
    with pytest.raises(TypeError, match="compres"):
        group.set_hints(polyrank.GroupHints(compres="bf16"))


def test_members_that_are_replaced_may_bring_hints():
    group = polyrank.ProcessGroup(
        polyrank.HashStore(), 0, 1, group_name="hinted", enable_reconfigure=True)
    hints = polyrank.GroupHints(compress="bf16")
    options = polyrank.ReconfigureOptions(
        uuid=1, handles=[group.get_reconfigure_handle()], hints=hints)
    group.reconfigure(options).wait()
    assert group.hints.compress == "bf16"
    assert summed(group) == [1] * 3
    # They stay where nothing is said.
    group.reconfigure(polyrank.ReconfigureOptions(
        uuid=2, handles=[group.get_reconfigure_handle()])).wait()
    assert group.hints.compress == "bf16"
    group.shutdown()


def test_a_group_that_was_destroyed_is_refused():
    group = polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, group_name="over")
    with dist.process_group(group):
        assert dist.current_process_group() is group
        group.shutdown()
        with pytest.raises(polyrank.InvalidGroupError, match="'over' was destroyed"):
            dist.current_process_group()
    calls = [
        lambda: group.set_timeout(5),
        lambda: dist.set_timeout(5, group),
        lambda: group.set_hints(polyrank.GroupHints()),
        group.revoke,
        lambda: group.register_pre_hook(0, print),
        lambda: group.register_pre_hook(0, polyrank.nan_check()),
        lambda: group.register_post_hook(0, print),
        lambda: group.register_completion_hook(0, print),
        lambda: group.register_abort_hook(0, print),
        lambda: dist.process_group(group).__enter__(),
        lambda: group.__enter__(),
    ]
    for call in calls:
        with pytest.raises(polyrank.InvalidGroupError, match="'over' was destroyed"):
            call()


def test_the_name_of_a_group_that_lives_is_refused(group):
    child = group.split_group([0], group_name="child")
    for parent in (group, child):
        for name in ("child", "group"):
            with pytest.raises(polyrank.DuplicateGroupError, match=f"'{name}' exists already"):
                parent.split_group([0], group_name=name)
    child.shutdown()
