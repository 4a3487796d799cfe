"""A rank whose program ends while a daemon thread of it is in an operation, as its first argument
says: "collective" or "recv". The other rank comes to it while the interpreter ends.

Knows nothing of how ranks are started.
"""

import os
import sys
import threading
import time

import numpy as np
import polyrank as pr


def tell(path, word, mkdir=os.mkdir):
    """Says a word to the other rank. Other modules may be gone already, so that it has its own."""
    mkdir(path + word)


def wait_for(path, word, access=os.access, sleep=time.sleep):
    """Waits until the other rank has said the word."""
    while not access(path + word, 0):
        sleep(0.01)


class SlowToEnd:
    """Keeps the interpreter's end going, with its lock free, until the other rank has come."""

    def __init__(self, path):
        self.path = path

    def __del__(self, tell=tell, wait_for=wait_for):
        tell(self.path, "ends")
        wait_for(self.path, "came")


def operate(kind, inside):
    """One operation, in which the thread is when the program ends."""
    data = np.zeros(100_000)
    if kind == "collective":
        work = pr.all_reduce(data, async_op=True)
    else:
        work = pr.irecv(data, 1)
    inside.set()
    work.wait()


def main():
    """Rank 0 begins to end first. The exit code is 0 if all went well."""
    kind, backend, path = sys.argv[1:4]
    pr.init_process_group(backend)
    if pr.get_rank() == 0:
        inside = threading.Event()
        threading.Thread(target=operate, args=(kind, inside), daemon=True).start()
        inside.wait()
        # It is cleared at the very end, when no other thread gets the interpreter's lock any more.
        sys.at_the_end = SlowToEnd(path)
        return
    wait_for(path, "ends")
    if kind == "recv":
        pr.send(np.zeros(100_000), 0)
    else:
        pr.all_reduce(np.zeros(100_000))
    tell(path, "came")
    print("\nREPORT 1 came", flush=True)


if __name__ == "__main__":
    main()
