"""A rank with tensors of PyTorch and CuPy on CUDA devices, over NCCL itself.

Prints "ok RANK" when all is as it should be. Where there are more ranks than devices, each sets
NCCL_HOSTID to something of its own. Knows nothing of how ranks are started.
"""

import asyncio
import os
import threading

import numpy as np
import polyrank as pr
import torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
RANKS = range(SIZE)
# What NCCL reduces: all but 16-bit integers.
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
          torch.int32, torch.int64, torch.complex64]
# Long enough that the host is far ahead of the device.
LONG = 4096


def filled(value, count=1000, dtype=torch.float32):
    """So many elements of a value on this rank's device."""
    return torch.full((count,), value, dtype=dtype, device=DEVICE)


def sums_of_every_dtype():
    """Small numbers, whose sums every dtype holds."""
    for dtype in DTYPES:
        for count in (0, 1, 7, 1000, 65_537):
            tensor = (torch.arange(count) % 5 + RANK).to(dtype).to(DEVICE)
            pr.all_reduce(tensor)
            expected = sum((torch.arange(count) % 5 + rank).to(dtype) for rank in RANKS)
            assert torch.equal(tensor.cpu(), expected.to(dtype)), (dtype, count)


def every_operator():
    """Against NumPy."""
    rows = np.stack([np.arange(6) + 1 + rank for rank in RANKS]).astype(np.float32)
    expected = {pr.ReduceOp.SUM: rows.sum(0), pr.ReduceOp.PRODUCT: rows.prod(0),
                pr.ReduceOp.MIN: rows.min(0), pr.ReduceOp.MAX: rows.max(0),
                pr.ReduceOp.AVG: rows.mean(0)}
    for operator, outcome in expected.items():
        tensor = torch.tensor(rows[RANK], device=DEVICE)
        pr.all_reduce(tensor, operator)
        np.testing.assert_allclose(tensor.cpu().numpy(), outcome, rtol=1e-6)


def every_collective():
    """Blocks that say where they come from."""
    ours = filled(RANK, 5)
    parts = [filled(-1, 5) for _ in RANKS]
    pr.all_gather(parts, ours)
    assert [part.tolist() for part in parts] == [[rank] * 5 for rank in RANKS]
    flat = filled(-1, 5 * SIZE)
    pr.all_gather_into_tensor(flat, ours)
    assert flat.tolist() == [rank for rank in RANKS for _ in range(5)]
    output = filled(-1, 5)
    pr.reduce_scatter_tensor(output, flat)
    assert output.tolist() == [RANK * SIZE] * 5
    pr.reduce_scatter(output, [filled(RANK + block, 5) for block in RANKS])
    assert output.tolist() == [sum(rank + RANK for rank in RANKS)] * 5
    sent = torch.cat([filled(RANK * 10 + block, 3) for block in RANKS])
    received = torch.empty_like(sent)
    pr.all_to_all_single(received, sent)
    assert received.tolist() == [rank * 10 + RANK for rank in RANKS for _ in range(3)]
    root = SIZE - 1
    tensor = filled(RANK)
    pr.broadcast(tensor, root)
    assert tensor.eq(root).all()
    pr.reduce(tensor, root)
    assert RANK != root or tensor.eq(root * SIZE).all()
    gathered = [filled(-1, 5) for _ in RANKS] if RANK == root else None
    pr.gather(ours, gathered, dst=root)
    assert gathered is None or [part[0].item() for part in gathered] == list(RANKS)
    pr.scatter(output, [filled(block, 5) for block in RANKS] if RANK == root else None, src=root)
    assert output.tolist() == [RANK] * 5
    pr.barrier()


def messages():
    """Around a ring, and one after the other."""
    if SIZE == 1:
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    theirs = filled(-1)
    for work in pr.batch_isend_irecv([pr.P2POp(pr.isend, filled(RANK), after),
                                      pr.P2POp(pr.irecv, theirs, before)]):
        work.wait()
    assert theirs.eq(before).all()
    if RANK == 0:
        pr.send(filled(7), 1)
    elif RANK == 1:
        pr.recv(theirs, 0)
        assert theirs.eq(7).all()


def operations_come_after_the_current_stream_and_wait_orders_it():
    """No stream is waited for by the host before the values are read."""
    producer, consumer = torch.cuda.Stream(DEVICE), torch.cuda.Stream(DEVICE)
    matrix = torch.eye(LONG, device=DEVICE)
    torch.cuda.synchronize(DEVICE)
    for turn in range(5):
        with torch.cuda.stream(producer):
            product = matrix
            for _ in range(10):
                product = product @ matrix
            tensor = product[0].clone().mul_(RANK + turn)
            work = pr.all_reduce(tensor, async_op=True)
        with torch.cuda.stream(consumer):
            work.wait()
            outcome = tensor * 2
            tensor.record_stream(consumer)
        consumer.synchronize()
        expected = 2 * sum(rank + turn for rank in RANKS)
        assert outcome[0].item() == expected, (outcome[0].item(), expected)
        assert outcome[1:].eq(0).all()


def memory_is_kept_until_the_device_is_done():
    """PyTorch's allocator gives memory that nobody holds to the next who asks, at once."""
    for turn in range(20):
        tensor = filled(turn, 100_000)
        address = tensor.data_ptr()
        work = pr.broadcast(tensor, 0, async_op=True)
        if RANK == 0:
            del tensor
            other = filled(-1, 100_000)
            assert other.data_ptr() != address or work.is_completed()
            work.wait()
        else:
            work.wait()
            assert tensor.eq(turn).all(), turn


def what_is_wrong_is_told():
    """The same words as over the double."""
    for call, says in [
        (lambda: pr.all_reduce(filled(1, 8)[::2]), "must be contiguous"),
        (lambda: pr.all_reduce(torch.ones(4, dtype=torch.int16, device=DEVICE)), "nccl backend"),
        (lambda: pr.all_reduce(torch.ones(4, dtype=torch.int32, device=DEVICE),
                               pr.ReduceOp.BXOR), "nccl backend"),
    ]:
        try:
            call()
        except (ValueError, pr.UnsupportedError) as error:
            assert says in str(error), error
        else:
            raise AssertionError(f"expected an error that says {says!r}")


def host_tensors_go_over_tcp():
    """And objects."""
    tensor = torch.full((3,), float(RANK))
    pr.all_reduce(tensor)
    assert tensor.tolist() == [float(sum(RANKS))] * 3
    objects = [None] * SIZE
    pr.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": rank} for rank in RANKS]


def ends_are_told():
    """To callbacks, futures and coroutines."""
    told = threading.Event()
    work = pr.all_reduce(filled(1), async_op=True)
    work.get_future().add_done_callback(lambda _: told.set())
    assert told.wait(60)

    async def main():
        tensor = filled(1)
        await pr.all_reduce(tensor, async_op=True)
        return tensor

    assert asyncio.run(main()).eq(SIZE).all()


def a_group_is_split():
    """Of the first rank and the last."""
    members = sorted({0, SIZE - 1})
    group = pr.new_group(members)
    if RANK in members:
        tensor = filled(1)
        pr.all_reduce(tensor, group=group)
        assert tensor.eq(len(members)).all()
        pr.destroy_process_group(group)


def arrays_of_cupy():
    """On a stream of its own."""
    try:
        import cupy
    except ImportError:
        print("skipped: there is no CuPy", flush=True)
        return
    with cupy.cuda.Device(DEVICE.index), cupy.cuda.Stream(non_blocking=True):
        array = cupy.arange(1000, dtype=cupy.float32)
        for _ in range(3):
            array *= 2
        pr.all_reduce(array)
        assert (array.get() == np.arange(1000, dtype=np.float32) * 8 * SIZE).all()


def main():
    """The exit code is 0 if all went well."""
    torch.cuda.set_device(DEVICE)
    assert pr.is_nccl_available(), pr.backend_unavailable_reason("nccl")
    pr.init_process_group("cpu:tcp,cuda:nccl", device_id=DEVICE.index)
    for part in [sums_of_every_dtype, every_operator, every_collective, messages,
                 operations_come_after_the_current_stream_and_wait_orders_it,
                 memory_is_kept_until_the_device_is_done, what_is_wrong_is_told,
                 host_tensors_go_over_tcp, ends_are_told, a_group_is_split, arrays_of_cupy]:
        try:
            part()
        except BaseException as error:
            print(f"FAILED {part.__name__} rank {RANK}: {error!r}", flush=True)
            raise
    torch.cuda.synchronize()
    pr.destroy_process_group()
    print("ok", RANK, flush=True)


main()
