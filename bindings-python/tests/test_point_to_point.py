"""Messages between two ranks: tags, order, any source, sizes."""

import numpy as np
import pytest

import polyrank


def tags_and_order(here):
    group, rank, size = here.group, here.rank, here.size
    right, left = (rank + 1) % size, (rank - 1) % size
    sent = [np.full(3, float(rank * 10 + tag)) for tag in (1, 2, 3)]
    works = [group.send([tensor], right, tag) for tag, tensor in zip((1, 2, 3), sent)]
    for tag in (3, 1, 2):
        tensor = np.zeros(3)
        work = group.recv([tensor], left, tag)
        work.wait()
        assert (tensor == left * 10 + tag).all()
        assert work.source_rank() == left
    for work in works:
        work.wait()
    # One tag: in order.
    for number in range(5):
        group.send([np.full(1, float(number))], right).wait()
    for number in range(5):
        tensor = np.zeros(1)
        group.recv([tensor], left).wait()
        assert tensor[0] == number


def test_tags_and_order(trio):
    trio.run(tags_and_order)


def from_anyone(here):
    if here.rank == 0:
        seen = {}
        for _ in range(1, here.size):
            tensor = np.zeros(2, np.int64)
            work = here.group.recv_anysource([tensor], 7)
            work.wait()
            seen[work.source_rank()] = tensor.tolist()
        assert seen == {r: [r, r] for r in range(1, here.size)}
    else:
        here.group.send([np.full(2, here.rank)], 0, 7).wait()


def test_receive_from_any_source(trio):
    trio.run(from_anyone)


def large_and_strided(here):
    if here.rank == 0:
        here.group.send([np.arange(300_000.0)[::3]], 1).wait()
        here.group.send([np.zeros(0)], 1).wait()
    elif here.rank == 1:
        memory = np.full(200_000, -1.0)
        here.group.recv([memory[::2]], 0).wait()
        assert (memory[::2] == np.arange(300_000.0)[::3]).all()
        assert (memory[1::2] == -1.0).all()
        here.group.recv([np.zeros(0)], 0).wait()


def test_large_strided_and_empty_messages(pair):
    pair.run(large_and_strided)


def wrong_messages(here):
    group = here.make_group("wrong messages")
    for peer in (here.size, -1):
        with pytest.raises(ValueError):
            group.send([np.zeros(1)], peer)
    with pytest.raises((ValueError, TypeError)):
        group.send([np.zeros(1), np.zeros(1)], (here.rank + 1) % here.size)
    group.barrier().wait()


def test_wrong_messages_are_refused(pair):
    pair.run(wrong_messages)


def size_differs(here):
    group = here.make_group("size differs")
    if here.rank == 0:
        # A small message has left before the receiver looks at it, so both endings are right.
        try:
            group.send([np.zeros(4)], 1, 5).wait()
        except polyrank.MessageSizeError:
            pass
    else:
        with pytest.raises(polyrank.MessageSizeError) as caught:
            group.recv([np.zeros(2)], 0, 5).wait()
        assert "32" in str(caught.value) and "16" in str(caught.value)


def test_a_message_that_does_not_fit_is_an_error_on_the_receiver(pair):
    pair.run(size_differs)


def dtype_differs(here):
    for count in (1, 8, 200_000):
        group = here.make_group(f"dtype differs {count}")
        sent = np.arange(count, dtype=np.float64)
        if here.rank == 0:
            # A small message has left before the receiver looks at it: the next call tells.
            with pytest.raises(polyrank.MessageDTypeError) as caught:
                group.send([sent], 1, 5).wait()
                group.recv([sent], 1, 5).wait()
        else:
            into = np.zeros(count, np.int64)
            with pytest.raises(polyrank.MessageDTypeError) as caught:
                group.recv([into], 0, 5).wait()
            assert not into.any()
        error = caught.value
        assert isinstance(error, TypeError)
        assert (error.from_rank, error.to_rank, error.tag) == (0, 1, 5)
        assert (error.sent_dtype, error.buffer_dtype) == ("f64", "i64")


def test_messages_of_unlike_dtypes_are_an_error_on_both_sides(pair):
    pair.run(dtype_differs)


def bytes_on_request(here):
    for count in (0, 1, 200_000):
        sent = np.arange(count, dtype=np.float64)
        if here.rank == 0:
            here.group.send([sent], 1, 6).wait()
        else:
            into = np.zeros(count, np.int64)
            here.group.recv([into.view(np.uint8)], 0, 6).wait()
            assert (into.view(np.float64) == sent).all()


def test_a_uint8_view_takes_the_bytes_of_any_message(pair):
    pair.run(bytes_on_request)
