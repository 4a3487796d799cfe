"""Options of groups over NCCL, as c10d's programs give them. A double plays NCCL: nothing here
runs on a device."""

import os
import sys
from pathlib import Path

import pytest

import polyrank
import polyrank.distributed as dist
from ranks import Pool

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target"))
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
DOUBLE = TARGET / "debug" / "examples" / f"libnccl_double{SUFFIX}"


@pytest.fixture
def doubled(tmp_path, monkeypatch):
    """A pool of two ranks that find the double instead of NCCL and the driver, and its log."""
    if not DOUBLE.exists():
        pytest.skip(f"{DOUBLE} is not built: cargo build -p polyrank-tests --example nccl_double")
    # The driver is looked for by its name alone.
    (tmp_path / f"libcuda{SUFFIX}").symlink_to(DOUBLE)
    before = os.environ.get("LD_LIBRARY_PATH", "")
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join(filter(None, [str(tmp_path), before])))
    monkeypatch.setenv("POLYRANK_NCCL_LIBRARY", str(DOUBLE))
    monkeypatch.setenv("NCCL_DOUBLE_LOG", str(tmp_path / "log"))
    pool = Pool(2)
    yield pool, tmp_path / "log"
    pool.close()


def test_options_are_those_of_c10d():
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    assert isinstance(options, polyrank.NcclOptions)
    assert isinstance(options, polyrank.BackendOptions)
    assert options.is_high_priority_stream and not options.blocking_wait
    # Set where it stands, and each has its own.
    options.config.min_ctas = 2
    options.config.net_name = "Socket"
    assert options.config.min_ctas == 2 and options.config.max_ctas is None
    assert dist.ProcessGroupNCCL.Options().config.min_ctas is None
    assert isinstance(options.config, dist.ProcessGroupNCCL.NCCLConfig)
    options.config = polyrank.NcclConfig(cga_cluster_size=4)
    assert options.config.min_ctas is None and options.config.cgaClusterSize == 4
    assert "config=NcclConfig(blocking=None, cga_cluster_size=4" in repr(options)
    named = polyrank.NcclOptions(backend="nccl", timeout=9, group_name="x")
    assert named.timeout == 9 and named.group_name == "x"


def test_wrong_members_are_refused_where_they_are_set():
    options = polyrank.NcclOptions()
    with pytest.raises(TypeError, match=r"'min_ctas' must be int \| None, not str"):
        options.config.min_ctas = "many"
    with pytest.raises(TypeError, match=r"'split_share' must be int \| None, not bool"):
        polyrank.NcclConfig(split_share=True)
    with pytest.raises(TypeError, match="there is no argument 'channels'"):
        polyrank.NcclConfig(channels=3)
    with pytest.raises(TypeError, match="'config' must be NcclConfig, not BackendOptions"):
        options.config = polyrank.BackendOptions()
    with pytest.raises(AttributeError):
        options.config.channels = 3


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"min_ctas": 0}, "NcclConfig: min_ctas must be from 1 to"),
        ({"min_ctas": 5, "max_ctas": 4}, "max_ctas must be at least min_ctas, 5, not 4"),
        ({"cga_cluster_size": 9}, "cga_cluster_size must be from 0 to 8, not 9"),
        ({"split_share": 2}, "split_share must be from 0 to 1, not 2"),
        ({"net_name": ""}, "net_name must be a name as 'Socket' or 'IB', not empty"),
        ({"max_ctas": -1}, "whose max_ctas is an integer from 0 to 4294967295, not -1"),
    ],
)
def test_numbers_out_of_range_are_refused_before_anybody_is_waited_for(config, says):
    options = polyrank.NcclOptions(config=polyrank.NcclConfig(**config))
    with pytest.raises(polyrank.InvalidArgumentError, match=says):
        alone("nccl", options)


def test_what_the_backend_cannot_have_is_refused():
    with pytest.raises(polyrank.UnsupportedError, match="NcclConfig.blocking = 1.*expected 0"):
        alone("nccl", polyrank.NcclOptions(config=polyrank.NcclConfig(blocking=1)))
    with pytest.raises(polyrank.InvalidArgumentError, match="this one are cpu:tcp") as caught:
        alone("tcp", polyrank.NcclOptions())
    assert "Give BackendOptions, or a backend as 'nccl'" in str(caught.value)
    with pytest.raises(TypeError, match=r"'pg_options' must be BackendOptions \| None, not Red"):
        alone("nccl", polyrank.ReduceOptions())


def alone(backend, options):
    """A default group that another rank would have to join."""
    store = polyrank.HashStore()
    dist.init_process_group(
        backend, store=store, rank=0, world_size=2, pg_options=options, timeout=60
    )


def groups_with_options(here):
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas, options.config.max_ctas = 2, 8
    options.config.net_name = "Socket"
    store = polyrank.PrefixStore("options", here.store)
    dist.init_process_group(
        "nccl",
        store=store,
        rank=here.rank,
        world_size=here.size,
        pg_options=options,
        device_id=here.rank,
        timeout=30,
    )
    for wrong in (
        lambda: dist.new_group(backend="tcp", pg_options=polyrank.NcclOptions()),
        lambda: dist.new_group(
            pg_options=polyrank.NcclOptions(config=polyrank.NcclConfig(split_share=3))
        ),
    ):
        # All ranks say so, and the group goes on.
        with pytest.raises(polyrank.InvalidArgumentError):
            wrong()
    chosen = polyrank.NcclOptions(timeout=7)
    chosen.config.split_share, chosen.config.cga_cluster_size = 1, 2
    child = dist.new_group(pg_options=chosen)
    assert child.timeout.total_seconds() == 7
    child.barrier().wait()
    # As its parent, where nothing is said.
    heir = child.split_group([0, 1])
    heir.barrier().wait()
    # Of another backend, it has nothing of NCCL.
    host = dist.new_group(backend="tcp")
    host.barrier().wait()
    dist.destroy_process_group()


def test_groups_over_the_double_are_made_with_them(doubled):
    pool, log = doubled
    pool.run(groups_with_options)
    calls = log.read_text().splitlines()
    made = [call for call in calls if call.startswith("ncclCommInitRankConfig")]
    asked = "min_ctas=2 max_ctas=8 net_name=Socket"
    assert sorted(made) == [f"ncclCommInitRankConfig {rank} of 2 {asked}" for rank in (0, 1)]
    split = [call.split(" ", 3)[3] for call in calls if call.startswith("ncclCommSplit")]
    # The child, the one as the child, and the one on the host that uses no share.
    shared = "cga_cluster_size=2 split_share=1"
    assert split.count(shared) == 4, calls
    priorities = [call for call in calls if call.startswith("cuStreamCreateWithPriority")]
    assert "cuStreamCreateWithPriority -5" in priorities, priorities
