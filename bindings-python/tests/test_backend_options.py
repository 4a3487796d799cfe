"""Options of a group come to the factory of a backend that the program registered: the very object
that was given, wherever a group is made, as in c10d."""

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist

TOLD = []


class Nothing:
    def allreduce(self, tensors, opts):
        pass


def told(about, options):
    TOLD.append((about.group_id, about.timeout.total_seconds(), options))
    return Nothing()


def keywords(store, rank, size, timeout, *, depth=0):
    TOLD.append(depth)
    return Nothing()


dist.register_backend("told", told, extended_api=True)
dist.register_backend("keywords", keywords)


class TreeOptions(dist.BackendOptions):
    """Those of all groups, and one more."""

    depth = 4


class Depth:
    """Nothing that polyrank knows."""


@pytest.fixture(autouse=True)
def alone():
    TOLD.clear()
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def default_group(backend, options):
    store = polyrank.HashStore()
    dist.init_process_group(backend, store=store, rank=0, world_size=1, pg_options=options)


def test_a_factory_is_given_the_object_wherever_a_group_is_made():
    tree, depth, table = TreeOptions(timeout=7, group_name="tree"), Depth(), {"depth": 3}
    default_group("told", tree)
    assert dist.default_group().group_name == "tree"
    pair = dist.new_group([0], pg_options=depth)
    plain = dist.BackendOptions(timeout=9)
    dist.new_group([0], timeout=5)
    part = dist.split_group(pair, [[0]], pg_options=table)
    inherited = part.split_group([0])
    part.split_group([0], opts=plain)
    polyrank.ProcessGroup(polyrank.HashStore(), 0, 1, "told", 6, pg_options=depth)
    options = [options for _, _, options in TOLD]
    expected = [tree, depth, tree, table, table, plain, depth]
    assert all(one is other for one, other in zip(options, expected, strict=True))
    assert options[0].depth == 4
    assert (TOLD[0][:2], TOLD[2][1], TOLD[5][1], TOLD[6][1]) == (("tree", 7), 5, 9, 6)
    assert inherited.size() == 1
    dist.all_reduce(np.ones(2))
    dist.destroy_process_group()


def test_a_factory_without_extended_api_is_given_a_dict_as_keywords():
    default_group("keywords", {"depth": 3})
    dist.new_group([0], pg_options=dist.BackendOptions(timeout=9))
    assert TOLD == [3, 0]
    for options, said in (({"width": 1}, "width"), (Depth(), "Depth"), (TreeOptions(), "Backend")):
        refused = f"'keywords' takes no options .*{said}"
        with pytest.raises(polyrank.DistBackendError, match=refused):
            dist.new_group([0], pg_options=options)
    dist.destroy_process_group()


def test_options_that_only_a_registered_backend_can_know_are_refused_elsewhere():
    for options, name in (({"depth": 3}, "dict"), (Depth(), "Depth")):
        said = f"must be BackendOptions, not {name}.*program registered.*of this group are cpu:tcp"
        with pytest.raises(TypeError, match=said):
            default_group("tcp", options)
    # Those of all groups are, whatever a program adds to them.
    default_group("tcp", TreeOptions(timeout=7))
    assert dist.default_group().timeout.total_seconds() == 7
    with pytest.raises(TypeError, match="'pg_options' must be BackendOptions"):
        dist.new_group([0], backend="told", pg_options=3)
    # What comes from a registered one is not for others.
    child = dist.new_group([0], backend="told", pg_options={"depth": 3})
    other = child.split_group([0], opts=dist.BackendOptions(backend="tcp"))
    assert other.name() == "tcp"
    dist.destroy_process_group()


def test_a_name_alone_stands_for_each_device_that_was_registered():
    dist.register_backend("of_cpu", keywords, devices="cpu")
    for backend, expected in (("told", "cpu:told,cuda:told"), ("of_cpu", "cpu:of_cpu")):
        default_group(backend, None)
        group = dist.default_group()
        assert (dist.get_backend(), dist.get_backend_config()) == (backend, expected)
        if backend == "told":
            assert group.get_backend("cuda:0").name() == "told"
        else:
            with pytest.raises(polyrank.InvalidArgumentError, match="its backends are cpu:of_cpu"):
                group.get_backend("cuda:0")
        dist.destroy_process_group()
    # By way of the host there is one for both.
    assert len([one for one in TOLD if one != 0]) == 1
