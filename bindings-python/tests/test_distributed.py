"""The free functions over the default group, as programs for torch.distributed use them."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import polyrank
import polyrank.distributed as dist
from ranks import PATIENCE_S


def free_functions(here):
    assert not dist.is_initialized()
    for call in (dist.get_rank, dist.barrier, lambda: dist.all_reduce(np.ones(1))):
        with pytest.raises(polyrank.NotInitializedError):
            call()
    store = polyrank.PrefixStore("default", here.store)
    limit = store.timeout
    dist.init_process_group("tcp", store=store, rank=here.rank, world_size=here.size, timeout=40)
    assert store.timeout == limit
    with pytest.raises(polyrank.AlreadyInitializedError):
        dist.init_process_group("tcp", store=store, rank=here.rank, world_size=here.size)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (rank, size) == (here.rank, here.size)
    assert dist.get_backend() == "tcp"

    collectives(rank, size)
    messages(rank, size)
    messages_of_all_kinds(rank)
    alltoalls_of_some_even_ranks(rank, size)
    subgroups(rank)
    dist.barrier()
    left = [polyrank.default_group(), dist.new_group()]
    dist.destroy_process_group()
    assert not dist.is_initialized()
    # A new default group can be made. Its groups have the names that the former ones had.
    dist.init_process_group("gloo", store=store, rank=here.rank, world_size=here.size, timeout=30)
    assert (dist.get_backend(), dist.get_backend_config()) == ("gloo", "cpu:gloo")
    groups = [polyrank.default_group(), dist.new_group()]
    assert [group.group_name for group in groups] == [group.group_name for group in left]
    for group in left:
        with pytest.raises(polyrank.InvalidGroupError, match="was destroyed"):
            dist.destroy_process_group(group)
    for group in groups:
        dist.barrier(group)
    dist.destroy_process_group()
    assert store.timeout == limit


def abort_forgets(here):
    store = polyrank.PrefixStore("abort forgets", here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)
    left = [polyrank.default_group(), dist.new_group()]
    dist.abort_process_group(left[1])
    assert dist.is_initialized() and dist.get_pg_count() == 1
    # What was registered is forgotten.
    for leave in (dist.destroy_process_group, dist.abort_process_group):
        with pytest.raises(polyrank.InvalidGroupError, match="was destroyed"):
            leave(left[1])
    dist.abort_process_group()
    assert not dist.is_initialized()
    for group in left:
        with pytest.raises(polyrank.PolyrankError):
            group.barrier().wait()
    with pytest.raises(polyrank.NotInitializedError):
        dist.abort_process_group()
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)
    tensor = np.ones(3)
    dist.all_reduce(tensor)
    assert (tensor == here.size).all()
    dist.destroy_process_group()


def test_abort_process_group_forgets_the_groups(world):
    world.run(abort_forgets)


def one_object_for_one_group(here):
    store = polyrank.PrefixStore("one object", here.store)
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=30)
    assert dist.group.WORLD is polyrank.default_group()
    mine = dist.new_group([here.rank], group_desc="mine", use_local_synchronization=True)
    with dist.process_group(mine) as inside:
        assert inside is mine and dist.current_process_group() is mine
    dist.destroy_process_group()


def test_a_group_is_one_object(pair):
    pair.run(one_object_for_one_group)


def collectives(rank, size):
    tensor = np.full(3, rank + 1.0)
    assert dist.all_reduce(tensor) is None
    assert (tensor == sum(range(1, size + 1))).all()
    work = dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True)
    assert work.wait()
    dist.broadcast(tensor, src=size - 1)
    dist.broadcast(tensor, group_src=0)
    tensors = [np.zeros(2) for _ in range(size)]
    dist.all_gather(tensors, np.full(2, float(rank)))
    assert [t[0] for t in tensors] == [float(r) for r in range(size)]
    flat = np.zeros(2 * size)
    dist.all_gather_into_tensor(flat, np.full(2, float(rank)))
    part = np.zeros(2)
    dist.reduce_scatter_tensor(part, flat)
    assert (part == rank * size).all()
    reduced = np.ones(2)
    dist.reduce(reduced, dst=size - 1)
    assert (reduced == (size if rank == size - 1 else 1)).all()
    dist.gather(np.full(1, float(rank)), [np.zeros(1) for _ in range(size)] if rank == 0 else None)
    mine = np.zeros(1)
    dist.scatter(mine, [np.full(1, float(r)) for r in range(size)] if rank == 1 else None, src=1)
    assert mine[0] == rank
    dist.all_to_all_single(np.zeros(size), np.ones(size))
    dist.barrier()
    with pytest.raises(ValueError):
        dist.broadcast(tensor, src=0, group_src=0)


def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    works = [dist.isend(np.full(2, float(rank)), right), dist.irecv(got := np.zeros(2), left)]
    for work in works:
        work.wait()
    assert (got == left).all()
    if rank == 0:
        dist.send(np.ones(1), 1, tag=4)
    elif rank == 1:
        assert dist.recv(np.zeros(1), tag=4) == 0
    operations = [
        dist.P2POp(dist.isend, np.full(1, float(rank)), right),
        dist.P2POp(dist.irecv, got := np.zeros(1), left),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert got[0] == left
    with pytest.raises(ValueError):
        dist.P2POp(dist.send, got, right)


def messages_of_all_kinds(rank):
    """Between ranks 0 and 1, short and long, in both directions."""
    if rank > 1:
        return
    peer = 1 - rank
    for turn, count in enumerate([0, 1, 3, 511, 512, 513, 4096, 100_000]):
        for dtype in ("uint8", "float32", "complex128", "float16"):
            given = (np.arange(2 * count) % 100 + turn).astype(dtype)
            got = np.zeros(2 * count, dtype)
            strided, halves = given[::2], got[::2]
            for _ in range(2):
                if rank == 0:
                    # A long one would wait until it is received, which is last.
                    send = dist.send if given.nbytes <= 4096 else dist.isend
                    work = send(given, peer, None, 3)
                    dist.send(strided, dst=peer, tag=2)
                    if work:
                        work.wait()
                    assert dist.recv(got, src=peer, tag=5) == peer
                else:
                    # The later one first.
                    assert dist.recv(halves, group_src=peer, tag=2) == peer
                    assert (halves == strided).all() and (got[1::2] == 0).all()
                    assert dist.recv(tensor=got, tag=3) == peer
                    dist.send(got, group_dst=peer, tag=5)
                assert (got == given).all(), (count, dtype)
                got[:] = 0
    text = np.zeros(4)
    text.flags.writeable = False
    if rank == 0:
        dist.send(text, peer)
        return
    with pytest.raises(ValueError, match="read-only"):
        dist.recv(text, peer)
    with pytest.raises(ValueError):
        dist.send(text, peer, group_dst=peer)
    for wrong in (7, -1):
        with pytest.raises((ValueError, OverflowError, TypeError)):
            dist.send(text, wrong)
    assert dist.recv(np.ones(4), peer) == peer


def alltoalls_of_some_even_ranks(rank, size):
    """Ranks 0 and 1 alone know that what they keep for themselves is of another length."""
    for turn in range(200):
        extra = [1, 0, 2][turn % 3] if rank < 2 else 0
        splits = [2 + extra * (other == rank) for other in range(size)]
        given = np.full(sum(splits), 10.0 * rank + turn)
        got = np.zeros(sum(splits))
        if extra:
            dist.all_to_all_single(got, given, splits, splits)
        else:
            dist.all_to_all_single(got, given)
        expected = [np.full(splits[other], 10.0 * other + turn) for other in range(size)]
        assert (got == np.concatenate(expected)).all(), turn
    with pytest.raises(ValueError, match="both"):
        dist.broadcast(got, 0, None, False, 0)


def subgroups(rank):
    # Global ranks are not ranks in the group.
    group = dist.new_group([2, 1])
    if rank in (1, 2):
        assert dist.get_process_group_ranks(group) == [1, 2]
        assert dist.get_group_rank(group, 2) == 1
        assert dist.get_global_rank(group, 1) == 2
        tensor = np.full(1, float(rank))
        dist.broadcast(tensor, src=2, group=group)
        assert tensor[0] == 2.0
        with pytest.raises(ValueError):
            dist.broadcast(tensor, src=0, group=group)
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER


def test_free_functions(trio):
    trio.run(free_functions)


@pytest.fixture
def port():
    """A port that nobody is given by chance during the test, and that rank 0 can take."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        yield reservation.getsockname()[1]


SCRIPT = """
import sys
import numpy as np
import polyrank as dist
dist.init_process_group(**eval(sys.argv[1]))
tensor = np.ones(2)
dist.all_reduce(tensor)
assert tensor[0] == dist.get_world_size() == 2
dist.destroy_process_group()
print("done", flush=True)
"""


@pytest.mark.parametrize("method", ["env", "tcp", "file"])
def test_rendezvous(method, tmp_path, port):
    processes = []
    for rank in range(2):
        environment = dict(os.environ)
        arguments = {"init_method": "env://", "timeout": 30}
        if method == "env":
            environment.update(
                RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )
        elif method == "tcp":
            url = f"tcp://127.0.0.1:{port}?rank={rank}&world_size=2"
            arguments["init_method"] = url
        else:
            url = f"file://{tmp_path}/rendezvous"
            arguments.update(init_method=url, rank=rank, world_size=2)
        command = [sys.executable, "-c", SCRIPT, repr(arguments)]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
    for process in processes:
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert out == "done\n"


def test_launcher(tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, sys, numpy as np, polyrank as dist\n"
        "dist.init_process_group()\n"
        "tensor = np.ones(1); dist.all_reduce(tensor)\n"
        "print('total', tensor[0], flush=True)\n"
        # The launcher ends the others when one fails.
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
        "sys.exit(int(sys.argv[1]) if dist is not None and os.environ['RANK'] == '1' else 0)\n"
    )
    for code in (0, 7):
        command = [sys.executable, "-m", "polyrank.run", "--nproc-per-node=3"]
        command += [str(script), str(code)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert ended.returncode == code, ended.stderr
        assert ended.stdout.count("total 3.0") == 3, ended.stdout + ended.stderr


@pytest.mark.parametrize("scheme", ["env", "tcp", "ws"])
def test_groups_that_follow_each_other_at_once(tmp_path, scheme):
    """A rank that is back before rank 0 has ended the last store waits for the next one."""
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, sys, polyrank as dist\n"
        "place = {key: int(os.environ[key.upper()]) for key in ('rank', 'world_size')}\n"
        "url = '127.0.0.1:' + os.environ['MASTER_PORT']\n"
        "options = {} if sys.argv[1] == 'env' else\\\n"
        "    {'init_method': f'{sys.argv[1]}://{url}', **place}\n"
        "for _ in range(150):\n"
        "    dist.init_process_group(**options)\n"
        "    dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "polyrank.run", "--nproc-per-node=3", str(script), scheme]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def destroyed(here):
    name = f"destroyed {here.size}"
    for group in (here.make_group(name), here.make_group(f"{name} split").split_group(
            list(range(here.size)))):
        ones = np.ones(3)
        prepared = group.prepare_allreduce(ones)
        group.shutdown()
        message = f"group '{group.group_name}' was destroyed"
        for call in (
            lambda: group.allreduce(ones).wait(),
            lambda: group.allreduce(np.ones(1)).wait(),
            lambda: group.allreduce(np.ones(1 << 16)).wait(),
            lambda: group.allreduce_coalesced([ones, ones]).wait(),
            lambda: group.barrier().wait(),
            lambda: group.send([ones], 0).wait(),
            lambda: group.recv([ones], 0).wait(),
            lambda: group.prepare_allreduce(ones),
            lambda: group.split_group([0]),
            lambda: dist.destroy_process_group(group),
            lambda: dist.abort_process_group(group),
        ):
            with pytest.raises(polyrank.InvalidGroupError, match=message):
                call()
        with pytest.raises(polyrank.PolyrankError):
            prepared.start().wait()
        assert (ones == 1).all()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_was_destroyed_is_refused(pools, size):
    pools(size).run(destroyed)
