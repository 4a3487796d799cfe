"""Softmax regression on handwritten digits, data-parallel: the Python ranks of the demo.

`tests/examples/digits.rs` is the same program in Rust, `digits.mjs` in JavaScript, for Node and for
a browser; ranks of all stand in one group. Every rank sums the gradient over its share of a batch,
so that a share weighs as much as it has images; allreduce adds the shares; every rank takes the
same step from the same sum, so that all hold the same weights to the last bit.
"""

import sys
from pathlib import Path

import numpy as np
import polyrank as pr

LANGUAGE = "Python"
PIXELS, CLASSES = 64, 10
EPOCHS, BATCH, LEARNING_RATE = 40, 256, np.float32(0.5)
ACCURACY_WANTED, DIFFERENCE_ALLOWED = 0.93, 1e-5


def load():
    """The images with a column of ones for the bias, and the digits; every fifth is for testing."""
    path = Path(__file__).parent.parent / "data" / "digits.csv"
    table = np.loadtxt(path, delimiter=",", dtype=np.float64)
    images = np.hstack([table[:, :PIXELS] / 16, np.ones((len(table), 1))])
    digits = table[:, PIXELS].astype(int)
    is_test = np.arange(len(table)) % 5 == 4
    return (images[~is_test], digits[~is_test]), (images[is_test], digits[is_test])


def gradient(weights, images, digits):
    """The sum over the images of the gradient, with the sum of the losses behind it.

    Languages may round differently here: what counts is that all ranks get the same sum.
    """
    scores = images @ weights.astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    exponentials = np.exp(scores)
    totals = exponentials.sum(axis=1)
    rows = np.arange(len(digits))
    loss = (np.log(totals) - scores[rows, digits]).sum()
    errors = exponentials / totals[:, None]
    errors[rows, digits] -= 1
    return np.append(images.T @ errors, loss).astype(np.float32)


def train(images, digits, rank, size, add_up, show):
    """The weights and the last epoch's mean loss. `add_up` sums a vector over the ranks, in place;
    `show` is told the weights and the mean loss after each epoch."""
    weights = np.zeros((PIXELS + 1, CLASSES), dtype=np.float32)
    mean_loss = 0.0
    for epoch in range(EPOCHS):
        loss = 0.0
        for start in range(0, len(images), BATCH):
            batch = slice(start, min(start + BATCH, len(images)))
            mine = slice(batch.start + rank, batch.stop, size)
            total = gradient(weights, images[mine], digits[mine])
            add_up(total)
            # Single operations of IEEE 754 on binary32, each rounded: every language has the same.
            step = LEARNING_RATE / np.float32(batch.stop - batch.start)
            weights -= step * total[:-1].reshape(weights.shape)
            loss += float(total[-1])
        mean_loss = loss / len(images)
        show(epoch + 1, weights, mean_loss)
    return weights, mean_loss


def count_right(weights, images, digits, rank, size):
    """For each rank, how many of its images it reads right and how many it has."""
    mine = slice(rank, None, size)
    guesses = (images[mine] @ weights).argmax(axis=1)
    counts = np.zeros((size, 2), dtype=np.int32)
    counts[rank] = np.count_nonzero(guesses == digits[mine]), len(digits[mine])
    pr.all_reduce(counts)
    return counts


def is_same_everywhere(weights):
    """Whether every rank holds these bits: their smallest and largest pattern are then equal."""
    smallest = weights.reshape(-1).view(np.uint32).copy()
    largest = smallest.copy()
    pr.all_reduce(smallest, op=pr.ReduceOp.MIN)
    pr.all_reduce(largest, op=pr.ReduceOp.MAX)
    return bool((smallest == largest).all())


def fingerprint(weights):
    """FNV-1a of the weights' bytes, to be compared by eye."""
    value = 0xCBF29CE484222325
    for byte in weights.astype("<f4").tobytes():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main():
    """Trains with the other ranks, checks, and reports; the exit code is 0 if all is as wanted."""
    pr.init_process_group()
    rank, size = pr.get_rank(), pr.get_world_size()
    store = pr.default_group().get_group_store()
    store.set(f"language/{rank}", LANGUAGE)
    languages = [store.get(f"language/{other}").decode() for other in range(size)]
    (images, digits), (test_images, test_digits) = load()

    def show(epoch, weights, loss):
        counts = count_right(weights, test_images, test_digits, rank, size)
        right, all_images = counts.sum(axis=0)
        shares = [f"{name} {a / b:.2f}" for name, (a, b) in zip(languages, counts)]
        if rank == 0:
            read = f"{right / all_images:.4f} read right ({', '.join(shares)})"
            print(f"epoch {epoch:2}: loss {loss:.7f}, {read}", flush=True)

    weights, loss = train(images, digits, rank, size, pr.all_reduce, show)
    counts = count_right(weights, test_images, test_digits, rank, size)
    right, all_images = (int(number) for number in counts.sum(axis=0))
    share = counts[rank, 0] / counts[rank, 1]
    same = is_same_everywhere(weights)
    columns = f"{LANGUAGE:8}  {loss:.7f}  {share:.4f}    {fingerprint(weights):016x}"
    store.set(f"result/{rank}", columns)
    good = same and right / all_images >= ACCURACY_WANTED
    if rank == 0:
        alone, _ = train(images, digits, 0, 1, lambda total: None, lambda *news: None)
        difference = float(np.abs(weights - alone).max())
        good = good and difference <= DIFFERENCE_ALLOWED
        print("rank  language  loss       accuracy  weights")
        for other in range(size):
            print(f"{other:4}  {store.get(f'result/{other}').decode()}")
        print(f"weights are {'the same bits' if same else 'DIFFERENT'} on all {size} ranks")
        print(f"largest difference to a single process: {difference:.1e}", flush=True)
    pr.destroy_process_group()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
