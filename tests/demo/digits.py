"""Softmax regression on handwritten digits, data-parallel: the Python ranks of the demo.

`tests/examples/digits.rs` is the same program in Rust, and ranks of both stand in one group. Every
rank computes the gradient of its share of a batch; allreduce adds the shares; every rank takes the
same step from the same sum, so that all hold the same weights to the last bit.
"""

import sys
from pathlib import Path

import numpy as np
import polyrank as pr

PIXELS, CLASSES = 64, 10
EPOCHS, BATCH, LEARNING_RATE = 40, 256, 0.5
ACCURACY_WANTED, DIFFERENCE_ALLOWED = 0.93, 1e-6


def load():
    """The images with a column of ones for the bias, and the digits; every fifth is for testing."""
    path = Path(__file__).parent.parent / "data" / "digits.csv"
    table = np.loadtxt(path, delimiter=",", dtype=np.float64)
    images = np.hstack([table[:, :PIXELS] / 16, np.ones((len(table), 1))])
    digits = table[:, PIXELS].astype(int)
    is_test = np.arange(len(table)) % 5 == 4
    return (images[~is_test], digits[~is_test]), (images[is_test], digits[is_test])


def gradient(weights, images, digits):
    """The sum over the images of the gradient, with the sum of the losses behind it."""
    scores = images @ weights
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    totals = exponentials.sum(axis=1)
    rows = np.arange(len(digits))
    loss = (np.log(totals) - scores[rows, digits]).sum()
    errors = exponentials / totals[:, None]
    errors[rows, digits] -= 1
    return np.append(images.T @ errors, loss)


def train(images, digits, rank, size, add_up, show):
    """The weights and the last epoch's mean loss. `add_up` sums a vector over the ranks, in place;
    `show` is told the mean loss of each epoch."""
    weights = np.zeros((PIXELS + 1, CLASSES))
    mean_loss = 0.0
    for epoch in range(EPOCHS):
        loss = 0.0
        for start in range(0, len(images), BATCH):
            batch = slice(start, min(start + BATCH, len(images)))
            mine = slice(batch.start + rank, batch.stop, size)
            total = gradient(weights, images[mine], digits[mine])
            add_up(total)
            # Two operations per element, the same in both languages: no rounding differs.
            step = LEARNING_RATE / (batch.stop - batch.start)
            weights -= step * total[:-1].reshape(weights.shape)
            loss += total[-1]
        mean_loss = loss / len(images)
        show(epoch + 1, mean_loss)
    return weights, mean_loss


def accuracy(weights, images, digits, rank, size):
    """The share of images that are read right, counted by all ranks together."""
    mine = slice(rank, None, size)
    guesses = (images[mine] @ weights).argmax(axis=1)
    right = np.array([np.count_nonzero(guesses == digits[mine])], dtype=np.int64)
    pr.all_reduce(right)
    return int(right[0]) / len(digits)


def is_same_everywhere(weights):
    """Whether every rank holds these bits: their smallest and largest pattern are then equal."""
    smallest = weights.reshape(-1).view(np.uint64).copy()
    largest = smallest.copy()
    pr.all_reduce(smallest, op=pr.ReduceOp.MIN)
    pr.all_reduce(largest, op=pr.ReduceOp.MAX)
    return bool((smallest == largest).all())


def fingerprint(weights):
    """FNV-1a of the weights' bytes, to be compared by eye."""
    value = 0xCBF29CE484222325
    for byte in weights.astype("<f8").tobytes():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main():
    """Trains with the other ranks, checks, and reports; the exit code is 0 if all is as wanted."""
    pr.init_process_group()
    rank, size = pr.get_rank(), pr.get_world_size()
    (images, digits), (test_images, test_digits) = load()

    def show(epoch, loss):
        if rank == 0:
            print(f"epoch {epoch:2}: loss {loss:.15f}", flush=True)

    weights, loss = train(images, digits, rank, size, pr.all_reduce, show)
    read_right = accuracy(weights, test_images, test_digits, rank, size)
    same = is_same_everywhere(weights)
    print(
        f"Python rank {rank} of {size}: loss {loss:.15f}, test accuracy {read_right:.4f}, "
        f"weights {fingerprint(weights):016x}",
        flush=True,
    )
    # What every rank says stands before what rank 0 says about all.
    pr.barrier()
    good = same and read_right >= ACCURACY_WANTED
    if rank == 0:
        alone, _ = train(images, digits, 0, 1, lambda total: None, lambda epoch, loss: None)
        difference = float(np.abs(weights - alone).max())
        good = good and difference <= DIFFERENCE_ALLOWED
        print(f"weights are {'the same bits' if same else 'DIFFERENT'} on all {size} ranks")
        print(f"largest difference to a single process: {difference:.3e}")
    pr.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
