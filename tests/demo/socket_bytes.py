"""How many bytes this process has sent by TCP, as the kernel of Linux counts them."""

import os
import socket
import struct

#: Where `struct tcp_info` of linux/tcp.h has `tcpi_bytes_sent`, and how much of it that takes.
AT, LENGTH = 200, 208


def sent_bytes():
    """By all connections that are open now: what was sent by those that are closed is forgotten."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LENGTH)
                    total += struct.unpack_from("Q", info, AT)[0]
        except OSError:
            # It was closed meanwhile, or is none of TCP.
            continue
    return total
