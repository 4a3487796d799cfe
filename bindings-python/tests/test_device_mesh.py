"""Meshes of ranks: layouts, groups along dimensions, parts, and what ranks disagree about."""

import asyncio
import re
import threading

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from polyrank.distributed.device_mesh import (
    DeviceMesh,
    _mesh_resources,
    current_device_mesh,
    extend_device_mesh,
    init_device_mesh,
)

SHAPES = {
    1: [(1,), (1, 1), (1, 1, 1)],
    2: [(2,), (1, 2), (2, 1), (1, 2, 1)],
    3: [(3,), (3, 1), (1, 1, 3)],
    5: [(5,), (1, 5), (2, 2), (2, 1, 2)],
    8: [(8,), (2, 4), (4, 2), (2, 2, 2), (1, 2, 3)],
}
NAMES = ("dp", "pp", "tp")


def in_world(here, name, function, *arguments):
    """Calls `function` with a default group of all ranks."""
    store = polyrank.PrefixStore(name, here.store)
    dist.init_process_group("tcp", store=store, rank=here.rank, world_size=here.size, timeout=30)
    try:
        return function(here, *arguments)
    finally:
        dist.destroy_process_group()


def has_layout(here, mesh, ranks):
    """Whether a mesh is what NumPy says of the array of its ranks, and its groups reduce so."""
    ranks = np.asarray(ranks)
    assert mesh.mesh.dtype == np.int32 and (mesh.mesh == ranks).all()
    assert mesh.shape == ranks.shape and mesh.ndim == ranks.ndim and mesh.size() == ranks.size
    assert [mesh.size(dim) for dim in range(-ranks.ndim, 0)] == list(ranks.shape)
    assert mesh.get_rank() == here.rank
    place = np.argwhere(ranks == here.rank)
    if len(place) == 0:
        assert mesh.get_coordinate() is None
        assert not mesh._is_current_rank_part_of_mesh()
        for call in (mesh.get_group, mesh.get_all_groups, mesh.get_local_rank):
            dim = () if call == mesh.get_all_groups else (0,)
            with pytest.raises(polyrank.InvalidGroupError, match=f"rank {here.rank} is not in the"):
                call(*dim)
        return
    place = tuple(int(index) for index in place[0])
    assert mesh.get_coordinate() == list(place)
    groups = mesh.get_all_groups()
    assert len(groups) == ranks.ndim
    for dim, group in enumerate(groups):
        line = ranks[(*place[:dim], slice(None), *place[dim + 1 :])]
        assert mesh.get_group(dim) is group and mesh.get_group(dim - ranks.ndim) is group
        assert list(group.ranks()) == line.tolist()
        assert mesh.get_local_rank(dim) == group.rank() == place[dim]
        total = np.array([here.rank + 1.5])
        dist.all_reduce(total, group=group)
        assert total[0] == (line + 1.5).sum()
        gathered = np.zeros(len(line), np.int64)
        dist.all_gather_into_tensor(gathered, np.array([here.rank]), group=group)
        assert gathered.tolist() == line.tolist()


def shapes(here):
    for shape in SHAPES[here.size]:
        names = NAMES[: len(shape)]
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        assert mesh.mesh_dim_names == names and mesh.device_type == "cpu"
        has_layout(here, mesh, np.arange(np.prod(shape)).reshape(shape))
        unnamed = init_device_mesh("cpu", shape)
        assert unnamed.mesh_dim_names is None and unnamed != mesh
        has_layout(here, unnamed, np.arange(np.prod(shape)).reshape(shape))
        again = init_device_mesh("cpu", shape, mesh_dim_names=list(names))
        assert again == mesh and hash(again) == hash(mesh) and again is not mesh
        if mesh.get_coordinate() is not None:
            for name in names:
                assert mesh.get_group(name) is mesh.get_group(names.index(name))
                assert mesh.get_local_rank(mesh_dim=name) == mesh.get_local_rank(names.index(name))


def test_meshes_of_a_shape(world):
    world.run(in_world, "shapes", shapes)


def explicit(here):
    rng = np.random.default_rng(20260727 + here.size)
    for count in {here.size, max(here.size - 1, 1), max(here.size // 2, 1)}:
        some = rng.permutation(here.size)[:count]
        arrays = [some, some.reshape(1, -1), some.reshape(-1, 1)]
        if count % 2 == 0:
            arrays += [some.reshape(2, -1), some.reshape(-1, 1, 2)]
        for array in arrays:
            dtype = [np.int64, np.int32, np.uint8, np.int16][len(array) % 4]
            for given in (array.astype(dtype), array.tolist(), array[::-1][::-1]):
                has_layout(here, DeviceMesh("cpu", given), array)
    # A view with steps, and a tuple of tuples.
    if here.size == 8:
        array = np.arange(8).reshape(4, 2).T
        has_layout(here, DeviceMesh("cpu", array, mesh_dim_names=("a", "b")), array)
        has_layout(here, DeviceMesh("cpu", ((0, 1), (6, 7))), [[0, 1], [6, 7]])


def test_meshes_of_any_ranks(world):
    world.run(in_world, "explicit", explicit)


def parts(here):
    # The example of torch's `DeviceMesh.__getitem__`.
    mesh_2d = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    tp, dp = mesh_2d["tp"], mesh_2d["dp"]
    has_layout(here, tp, [0, 1, 2, 3] if here.rank < 4 else [4, 5, 6, 7])
    has_layout(here, dp, [here.rank % 4, here.rank % 4 + 4])
    assert tp.get_group() is mesh_2d.get_group("tp") and dp.get_local_rank() == here.rank // 4
    assert mesh_2d["dp", "tp"] is mesh_2d["dp", "tp"] is mesh_2d
    assert tp == mesh_2d["tp"] and tp["tp"] is tp
    mesh_3d = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "pp", "cp"))
    dp_cp = mesh_3d["dp", "cp"]
    expected = [[0, 1], [4, 5]] if here.rank in (0, 1, 4, 5) else [[2, 3], [6, 7]]
    has_layout(here, dp_cp, expected)
    assert dp_cp.mesh_dim_names == ("dp", "cp") and dp_cp["cp"] == mesh_3d["cp"]
    for part in (dp_cp, dp_cp["cp"]):
        assert part.get_root_mesh() is part._get_root_mesh() is mesh_3d
        assert _mesh_resources.get_root_mesh(part) is mesh_3d
    assert mesh_3d.get_root_mesh() is mesh_3d
    assert _mesh_resources.get_mesh_dim_by_name(mesh_3d, "cp") == 2
    for names, said in [
        ("ep", "no dimension 'ep'; its dimensions are"),
        (("cp", "dp"), "in the order of the dimensions"),
        (("dp", "dp"), "in the order of the dimensions"),
        ((), "expected one name or more"),
    ]:
        with pytest.raises(polyrank.MeshDimensionError, match=f"^(the|a) mesh .*{said}") as raised:
            mesh_3d[names]
        assert isinstance(raised.value, (KeyError, polyrank.InvalidArgumentError))
    with pytest.raises(polyrank.InvalidArgumentError, match="no dimension 'pp'"):
        dp_cp["pp"]
    with pytest.raises(TypeError):
        iter(mesh_3d)
    with pytest.raises(polyrank.InvalidArgumentError, match="without mesh_dim_names"):
        init_device_mesh("cpu", (8,))["dp"]
    some = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
    if here.rank < 4:
        has_layout(here, some["dp"], [here.rank % 2, here.rank % 2 + 2])
    else:
        with pytest.raises(polyrank.InvalidGroupError, match=f"rank {here.rank} is not in the"):
            some["dp"]


def test_parts_are_those_that_torch_documents(pools):
    pools(8).run(in_world, "parts", parts)


def flattened(here):
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
    dp_cp = mesh["dp", "cp"]._flatten("dp_cp")
    has_layout(here, dp_cp, [0, 2, 4, 6] if here.rank % 2 == 0 else [1, 3, 5, 7])
    assert dp_cp.mesh_dim_names == ("dp_cp",) and dp_cp.get_root_mesh() is mesh
    assert mesh["dp_cp"] == dp_cp and mesh["dp_cp"].get_group() is dp_cp.get_group()
    assert mesh.get_group("dp_cp") is dp_cp.get_group()
    # torch's `get_local_rank` is `get_rank(self.get_group(mesh_dim))`.
    for part in (mesh, mesh["dp"], dp_cp, mesh["dp_cp", "tp"]):
        assert part.get_local_rank("dp_cp") == here.rank // 2 == dist.get_rank(dp_cp.get_group())
        assert part.size("dp_cp") == 4 and part.get_group("dp_cp") is dp_cp.get_group()
    with pytest.raises(polyrank.MeshDimensionError, match=r"no dimension .*\['dp', 'cp', 'tp'\]"):
        _mesh_resources.get_mesh_dim_by_name(mesh, "dp_cp")
    # Not contiguous: torch puts the remaining dimension first.
    with_tp = mesh["dp_cp", "tp"]
    has_layout(here, with_tp, np.arange(8).reshape(4, 2))
    dp_tp = mesh["dp", "tp"].flatten()
    assert dp_tp.mesh_dim_names == ("dp_tp",)
    has_layout(here, dp_tp, [0, 1, 4, 5] if here.rank in (0, 1, 4, 5) else [2, 3, 6, 7])
    whole = mesh.flatten("all")
    has_layout(here, whole, range(8))
    assert mesh["dp", "cp"].flatten("dp_cp") == dp_cp
    assert mesh["tp"].flatten("tp") == mesh["tp"]
    for name in ("tp", "dp_tp"):
        with pytest.raises(polyrank.InvalidArgumentError, match=f"'{name}' is a dimension"):
            mesh["dp", "cp"].flatten(name)
    with pytest.raises(polyrank.InvalidArgumentError, match="without mesh_dim_names"):
        init_device_mesh("cpu", (2, 4)).flatten("x")
    # Names that differ between ranks.
    with pytest.raises(polyrank.InvalidArgumentError) as raised:
        mesh["cp", "tp"].flatten("x" if here.rank % 4 == 0 else "y")
    first = here.rank // 4 * 4
    others = re.escape(str([first + 1, first + 2, first + 3]))
    assert re.search(f"flatten: ranks disagree: rank {first} gave 'x'.*ranks {others} gave 'y'",
                     str(raised.value)), raised.value
    # What one rank refuses is known to the others, which do not wait for it.
    with pytest.raises(polyrank.InvalidArgumentError, match="it refused .*'tp' is a dimension"):
        mesh["cp", "tp"].flatten("tp" if here.rank % 4 == 0 else "z")
    assert mesh["cp", "tp"].flatten("z").size() == 4


def test_flattened_dimensions(pools):
    pools(8).run(in_world, "flattened", flattened)


def of_groups(here):
    world = dist.default_group()
    mesh = DeviceMesh.from_group(world, "cpu", mesh_dim_names=("dp",))
    has_layout(here, mesh, range(here.size))
    assert mesh.get_group() is world
    assert DeviceMesh.from_group(world, "cpu", mesh=list(range(here.size))).mesh_dim_names is None
    assert DeviceMesh.from_group([world], "cpu", np.arange(here.size)).get_group() is world
    ranks = np.arange(8).reshape(2, 4)
    column, row = here.rank % 4, here.rank // 4
    groups = [dist.new_group([column, column + 4]), dist.new_group(ranks[row].tolist())]
    mesh = DeviceMesh.from_group(groups, "cpu", ranks, mesh_dim_names=("dp", "tp"))
    has_layout(here, mesh, ranks)
    assert mesh.get_all_groups() == groups
    assert mesh == init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    for arguments, names, said in [
        ((groups, "cpu"), ("a", "b"), "Must pass mesh if"),
        ((groups, "cpu", ranks), None, "Must pass mesh_dim_names"),
        ((groups, "cpu", ranks[0]), ("a",), "2 groups make a mesh of 2 dimensions, not 1"),
        ((groups, "cpu", ranks.T), ("a", "b"),
         f"dimension 0 .*which has 4 ranks here: {re.escape(str(ranks[row].tolist()))}"),
        ((world, "cpu", [0, 1, 2]), None, r"dimension 0 .*, which has 3 ranks here: \[0, 1, 2\]"),
        ((groups, "cpu", ranks[:, ::-1]), ("a", "b"), "cannot be that of dimension"),
        ((groups, "cpu", [[0], [1]]), ("a", "b"), "cannot be that of dimension 1"),
        (([], "cpu", ranks), ("a", "b"), "0 groups make a mesh of 0 dimensions"),
        ((world, "cuda:0"), None, "not 'cuda:0'; it has no index: give 'cuda'"),
    ]:
        with pytest.raises(polyrank.InvalidArgumentError, match=said):
            DeviceMesh.from_group(*arguments, mesh_dim_names=names)


def test_meshes_of_groups_that_exist(pools):
    pools(8).run(in_world, "of groups", of_groups)


def of_standalone_groups(here):
    assert not dist.is_initialized()
    mesh = DeviceMesh.from_group(here.group, "cpu", mesh_dim_names=["dp"])
    assert mesh.get_coordinate() == [here.rank] and mesh.get_rank() == here.rank
    lonely = here.make_group("lonely")
    of_lonely = DeviceMesh.from_group(lonely, "cpu")
    assert of_lonely.get_rank() == here.rank
    lonely.shutdown()
    with pytest.raises(polyrank.NotInitializedError):
        of_lonely.get_rank()
    layout = DeviceMesh("cpu", [[0, 1], [2, 3]], _init_backend=False)
    assert layout.get_coordinate() is None and layout.shape == (2, 2)
    with pytest.raises(polyrank.NotInitializedError):
        layout.get_rank()


def test_meshes_without_a_default_group(trio):
    trio.run(of_standalone_groups)


def layouts_only(here):
    if here.rank == 1:
        # Nobody else is needed.
        layout = DeviceMesh("cpu", [2, 1, 0], mesh_dim_names=("dp",), _init_backend=False)
        assert layout.get_coordinate() == [1] and layout["dp"] is layout
        with pytest.raises(polyrank.InvalidGroupError, match="layout only"):
            layout.get_group()
        assert layout == eval(repr(layout).replace(")", ", _init_backend=False)"))
    dist.barrier()


def test_a_layout_alone_asks_no_other_rank(trio):
    trio.run(in_world, "layouts", layouts_only)


def extended(here):
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("tp",))
    replicas = here.make_group("replicas of an extended mesh")
    for dim, shape, names in [(0, (1, 3), ("dp", "tp")), (1, (3, 1), ("tp", "dp"))]:
        wider = extend_device_mesh(mesh, replicas, dim=dim)
        assert (wider.shape, wider.mesh_dim_names) == (shape, names)
        assert wider.get_group("dp") is replicas and wider.size("dp") == 1
        assert wider.get_local_rank("dp") == 0
        assert wider.get_group("tp") is mesh.get_group()
        total = np.ones(1)
        dist.all_reduce(total, group=wider["dp"].get_group())
        assert total[0] == 3
        with pytest.raises(polyrank.InvalidArgumentError, match="'dp', which extend_device_mesh"):
            wider.flatten("all")
        assert wider["tp"].flatten("all").size() == 3
    with pytest.raises(polyrank.InvalidArgumentError, match="not 'tp'"):
        extend_device_mesh(mesh, replicas, name="tp")
    with pytest.raises(polyrank.InvalidArgumentError, match="from 0 to 1, not 5"):
        extend_device_mesh(mesh, replicas, dim=5)


def many_dimensions(here):
    for dims in (8, 12):
        ranks = np.arange(3).reshape((1,) * (dims - 1) + (3,))
        for given in (ranks, ranks.tolist()) if dims == 8 else (ranks,):
            assert DeviceMesh("cpu", given).shape == ranks.shape


def test_a_mesh_has_as_many_dimensions_as_one_likes(trio):
    trio.run(in_world, "many dimensions", many_dimensions)


def outlived(here):
    store = polyrank.PrefixStore("outlived", here.store)
    meshes = []
    for run in ("first", "second"):
        options = {"store": polyrank.PrefixStore(run, store), "timeout": 30}
        dist.init_process_group("tcp", rank=here.rank, world_size=3, **options)
        mesh = init_device_mesh("cpu", (3, 1), mesh_dim_names=("dp", "tp"))
        meshes.append((mesh, mesh.get_group("dp")))
        layout = DeviceMesh("cpu", [0, 1, 2], _init_backend=False)
        asked = [mesh, mesh["dp"], layout]
        assert [one.get_rank() for one in asked] == [here.rank] * 3
        if run == "first":
            dist.destroy_process_group()
            for one in asked:
                with pytest.raises(polyrank.NotInitializedError):
                    one.get_rank()
    (old, group), (present, _) = meshes
    with pytest.raises(polyrank.InvalidGroupError, match="destroyed"):
        old.get_rank()
    with pytest.raises(polyrank.InvalidGroupError, match="destroyed"):
        old.flatten("all")
    assert present.flatten("all").size() == 3
    with pytest.raises(polyrank.InvalidGroupError, match="destroyed"):
        DeviceMesh.from_group(group, "cpu")
    with pytest.raises(polyrank.InvalidGroupError, match="destroyed"):
        extend_device_mesh(present, group)
    dist.destroy_process_group()


def test_a_mesh_whose_group_was_destroyed_is_refused(trio):
    trio.run(outlived)


def test_a_dimension_whose_members_change(trio):
    trio.run(in_world, "extended", extended)


def disagreements(here):
    last = here.size - 1
    is_odd = here.rank == last
    others = "rank 0" if last == 1 else re.escape(f"ranks {list(range(last))}")
    n = here.size

    def told(function, ours, theirs):
        with pytest.raises(polyrank.InvalidArgumentError) as raised:
            (function)()
        found = re.search(f"ranks disagree: {others} gave (.*); rank {last} gave (.*)",
                          str(raised.value))
        assert found and ours in found[1] and theirs in found[2], raised.value

    def init(*arguments, **options):
        return lambda: init_device_mesh("cpu", *arguments, **options)

    told(init((1, n) if is_odd else (n, 1)), str(np.arange(n)[:, None].tolist()),
         str([list(range(n))]))
    told(init((n,), mesh_dim_names=("b" if is_odd else "a",)), "['a']", "['b']")
    told(lambda: init_device_mesh("cuda" if is_odd else "cpu", (n,)), "'cpu'", "'cuda'")
    mine = list(range(n))[::-1] if is_odd else list(range(n))
    told(lambda: DeviceMesh("cpu", mine), str(list(range(n))), str(list(range(n))[::-1]))
    # What one rank refuses is known to the others, which do not wait for it.
    told(init((n + 1,) if is_odd else (n,)), "DeviceMesh", f"has {n + 1} ranks, but there are only")
    told(lambda: DeviceMesh("cpu", [0, 0] if is_odd else [0, 1]), "[0, 1]", "rank 0 is in the mesh")
    override = {0: "gloo"} if is_odd else None
    told(init((n,), backend_override=override), "DeviceMesh", "with gloo for dimension 0")
    # The group is as good as it was.
    has_layout(here, init_device_mesh("cpu", (1, n)), [list(range(n))])


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_mesh_that_differs_between_ranks_is_an_error_on_all(pools, size):
    pools(size).run(in_world, "disagreements", disagreements)


def makes_another_call(here):
    with pytest.raises(polyrank.CollectiveMismatchError):
        if here.rank == 0:
            dist.all_reduce(np.ones(3))
        else:
            init_device_mesh("cpu", (3,))


def test_a_rank_that_makes_no_mesh_is_told_apart(trio):
    trio.run(in_world, "another call", makes_another_call)


def makes_no_call(here):
    store = polyrank.PrefixStore("no call", here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=3, timeout=60)
    if here.rank != 1:
        polyrank.set_timeout(1)
        with pytest.raises(polyrank.CollectiveTimeoutError) as raised:
            init_device_mesh("cpu", (3,))
        assert 1 in raised.value.missing_ranks
    here.group.barrier().wait()
    dist.abort_process_group()


def test_a_rank_that_calls_nothing_ends_the_others_wait(trio):
    trio.run(makes_no_call)


def refused(here):
    for arguments, options, said in [
        (("cpu", (2, 2)), {}, r"shape \[2, 2\] has 4 ranks, but there are only 3"),
        (("cpu", ()), {}, r"cannot have the shape \[\]"),
        (("cpu", (3, 0)), {}, r"cannot have the shape \[3, 0\]"),
        (("cpu", (3,)), {"mesh_dim_names": ("a", "b")}, "1 dimensions has 1 names, not 2"),
        (("cpu", (1, 3)), {"mesh_dim_names": ("a", "a")}, "once, not 'a'"),
        (("cuda:0", (3,)), {}, "give 'cuda'"),
        (("xla", (3,)), {}, "must be 'cpu' or 'cuda', not 'xla'"),
        (("cpu", (3,)), {"backend_override": {"x": "gloo"}}, "no dimension 'x'"),
        (("cpu", (3,)), {"backend_override": {1: "gloo"}}, "1 dimensions, and none at 1"),
        (("cpu", (3,)), {"backend_override": {0: 5}}, "must name dimensions"),
    ]:
        with pytest.raises(polyrank.InvalidArgumentError, match=said):
            init_device_mesh(*arguments, **options)
    with pytest.raises(polyrank.UnknownBackendError, match="nosuch"):
        init_device_mesh("cpu", (3,), backend_override={0: "nosuch"})
    for mesh, said in [
        ([[0, 1], [2]], "equal lengths"),
        ([0, [1, 2]], "equal depths"),
        ([[0], 1], "equal depths"),
        ([0, 0], "rank 0 is in the mesh twice"),
        ([0, 3], "rank 3 is in the mesh, but the ranks are 0 to 2"),
        ([-1], "-1 is not a rank"),
        (np.array([0.0, 1.0]), "array of integers, not of f64"),
        ("01", "nested lists or as an array"),
        (1, "nested lists or as an array"),
        (np.array(1), "nested lists or as an array|cannot have the shape"),
    ]:
        with pytest.raises(polyrank.InvalidArgumentError, match=said):
            DeviceMesh("cpu", mesh)
    mesh = init_device_mesh("cpu", (1, 3))
    for call in (mesh.get_group, mesh.get_local_rank):
        with pytest.raises(polyrank.InvalidArgumentError, match="2 dimensions: mesh_dim must say"):
            call()
        with pytest.raises(polyrank.InvalidArgumentError, match="none at 2"):
            call(2)
        with pytest.raises(polyrank.InvalidArgumentError, match="its dimensions have no names"):
            call("dp")
    with pytest.raises(TypeError):
        init_device_mesh("cpu", "ab")


def test_what_is_wrong_is_said(trio):
    trio.run(in_world, "refused", refused)


def overridden(here):
    options = polyrank.BackendOptions(backend="gloo")
    for given in ({0: "gloo"}, {"dp": "gloo"}, {"dp": options}, {-2: ("gloo", None)}):
        names = ("dp", "tp")
        mesh = init_device_mesh("cpu", (1, 3), mesh_dim_names=names, backend_override=given)
        backends = [dist.get_backend(group) for group in mesh.get_all_groups()]
        assert backends == ["gloo", "tcp"], given
    assert [g.group_desc for g in mesh.get_all_groups()] == ["mesh_dp", "mesh_tp"]


def test_backends_by_dimension(trio):
    trio.run(in_world, "overridden", overridden)


def makes_the_default_group(here, port):
    import os

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(here.rank),
                      WORLD_SIZE=str(here.size))
    mesh = init_device_mesh("cpu", (here.size,))
    assert dist.get_world_size() == here.size and mesh.get_group() is dist.default_group()
    dist.barrier()
    dist.destroy_process_group()


def test_the_default_group_is_made_if_there_is_none(trio):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    trio.run(makes_the_default_group, port)


def test_the_current_mesh_follows_tasks_and_threads():
    layouts = [
        DeviceMesh("cpu", [number], _init_backend=False, mesh_dim_names=("x",))
        for number in range(3)
    ]
    with pytest.raises(polyrank.InvalidArgumentError, match="No device mesh is currently active"):
        current_device_mesh()

    async def task(mesh, steps):
        with mesh:
            for step in range(steps):
                await asyncio.sleep(0)
                assert current_device_mesh() is mesh
                with layouts[step % 3]:
                    await asyncio.sleep(0)
                    assert current_device_mesh() is layouts[step % 3]
        return True

    async def all_tasks():
        # Each mesh is the current one of several tasks at the same time.
        return await asyncio.gather(*(task(layouts[n % 3], 2 + n % 4) for n in range(12)))

    assert all(asyncio.run(all_tasks()))
    with layouts[0] as entered:
        assert entered is layouts[0] is _mesh_resources.get_current_mesh()
        found = []
        thread = threading.Thread(target=lambda: found.append(no_mesh()))
        thread.start()
        thread.join()
        assert found == [True]
    assert no_mesh()


def no_mesh():
    try:
        current_device_mesh()
    except polyrank.InvalidArgumentError:
        return True
    return False


def test_names_are_where_torch_has_them():
    import polyrank.device_mesh

    for module in (polyrank, dist, polyrank.device_mesh, dist.device_mesh):
        for name in ("DeviceMesh", "init_device_mesh"):
            assert getattr(module, name) is getattr(polyrank, name)
