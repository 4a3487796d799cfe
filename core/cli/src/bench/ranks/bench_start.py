"""The moment at which all ranks make their next call, agreed through a file: as the benchmark's own
ranks do it, see `common_start.rs`. Knows nothing of what is called."""

import os
import struct
import time

RECORD_BYTES = 16
ALL_BITS = (1 << 64) - 1
#: After so many looks, the library may have to do something for ranks that are still at work, and
#: where ranks share cores, this one sleeps between two looks.
LOOKS = 64
YIELDS = 16
SLEEP_NS = 50_000


class CommonStart:
    """One rank's side of the agreement."""

    def __init__(self, assignment, rank, progress):
        self.file = os.open(assignment["starts"], os.O_RDWR)
        self.rank, self.ranks, self.progress = rank, assignment["ranks"], progress
        self.layout = struct.Struct(f"<{2 * self.ranks}Q")
        self.limit_ns = assignment["timeout_s"] * 1_000_000_000
        self.round, self.last_ns = 0, 0
        self.yields = assignment["yields"]

    def wait(self, lead_ns):
        """Says that this rank is ready, and returns when the agreed moment has come: that moment,
        and when this rank saw it, nanoseconds of the monotonic clock."""
        clock = time.monotonic_ns
        first = (self.round % 2) * self.layout.size
        ready_ns = max(clock(), self.last_ns + 1)
        record = struct.pack("<QQ", ready_ns, ready_ns ^ ALL_BITS)
        os.pwrite(self.file, record, first + self.rank * RECORD_BYTES)
        agreed_ns = self.latest(first, ready_ns) + lead_ns
        self.round += 1
        self.last_ns = agreed_ns
        now = clock()
        while self.yields and now < agreed_ns:
            make_room(agreed_ns - now > 2 * SLEEP_NS)
            now = clock()
        while now < agreed_ns:
            now = clock()
        return agreed_ns, now

    def latest(self, first, ready_ns):
        """The latest of the ranks' times of this round."""
        looks = 0
        while True:
            numbers = self.layout.unpack(os.pread(self.file, self.layout.size, first))
            times, complements = numbers[::2], numbers[1::2]
            # Every record of this round is later than the start of the round before.
            if min(times) > self.last_ns and all(map(is_whole, times, complements)):
                return max(times)
            looks += 1
            is_long = self.yields and looks > YIELDS
            if is_long or looks % LOOKS == 0:
                self.progress()
                if time.monotonic_ns() - ready_ns > self.limit_ns:
                    raise TimeoutError("a rank was not ready for the next call in time")
            if self.yields:
                make_room(is_long)


def make_room(is_long):
    """Lets other ranks have the core."""
    if is_long:
        time.sleep(SLEEP_NS * 1e-9)
    else:
        os.sched_yield()


def is_whole(ready_ns, complement):
    """Whether a record was read as it was written: a read may see half of a write."""
    return complement == ready_ns ^ ALL_BITS
