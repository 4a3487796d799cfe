"""A wire with a delay between hosts that are network namespaces of this machine: each has a TUN
device, and a process passes each packet on some time after it came. It stands in for `tc netem`,
which not every kernel has. Needs Linux and root. Knows nothing of who sends what.
"""

import collections
import contextlib
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

#: From linux/if_tun.h: what makes a device, one of IP packets, without a header of its own.
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
#: As long as a packet can be: the fewer there are, the less is measured of this process.
MTU = 65_000
#: Most packets that are taken from a device before the next one has its turn.
BATCH = 32


def open_device(name):
    """Makes a TUN device of this name; it is there as long as the descriptor is open."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI)
    fcntl.ioctl(device, TUNSETIFF, request)
    return device


@contextlib.contextmanager
def passing_on(devices, seconds):
    """Passes packets on between the devices of hosts 1, 2, ... of a network, whose addresses end
    with these numbers."""
    words = [sys.executable, os.path.abspath(__file__), str(seconds), *map(str, devices)]
    process = subprocess.Popen(words, pass_fds=devices)
    for device in devices:
        os.close(device)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def pass_on(seconds, devices):
    """Runs until it is killed."""
    waiting = collections.deque()
    while True:
        left = max(0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select(devices, [], [], left)
        now = time.monotonic()
        for device in ready:
            with contextlib.suppress(BlockingIOError):
                for _ in range(BATCH):
                    waiting.append((now + seconds, os.read(device, MTU + 100)))
        while waiting and waiting[0][0] <= now:
            _, packet = waiting.popleft()
            # What is not for one of the hosts, or finds no room there, is lost, as on a wire.
            host = packet[19] - 1 if packet[0] >> 4 == 4 else -1
            if 0 <= host < len(devices):
                with contextlib.suppress(OSError):
                    os.write(devices[host], packet)


if __name__ == "__main__":
    pass_on(float(sys.argv[1]), list(map(int, sys.argv[2:])))
