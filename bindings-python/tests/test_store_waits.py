"""Who waits long for a key of a store is told which one nobody has set: each kind of store."""

import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

WAIT_S = 0.45
"""Longer than it takes until something is said, 0.2 s, and shorter than until it is said again."""

SERVER = "server = pr.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False)"
SERVER_IPV6 = SERVER.replace("127.0.0.1", "::1")
TCP = "the store at 127.0.0.1:PORT"
STORES = {
    "TCPStore": (f"{SERVER}; store = server", TCP),
    "TCPStore at an IPv6 address": (f"{SERVER_IPV6}; store = server", "the store at [::1]:PORT"),
    "PrefixStore": (f"{SERVER}; store = pr.PrefixStore('p', server)", TCP),
    "HashStore": ("store = pr.HashStore()", "HashStore()"),
    "FileStore": ("store = pr.FileStore(sys.argv[1], 1)", "FileStore('PATH')"),
    "WebSocketStore": (
        f"{SERVER}; store = pr.WebSocketStore(f'ws://127.0.0.1:{{server.port}}')",
        "WebSocketStore(ws://127.0.0.1:PORT)",
    ),
}


def said(lines, path="no path"):
    """What is said of stalls, without figures."""
    told = [line.split("polyrank: ", 1)[1] for line in lines if "polyrank: " in line]
    told = [re.sub(r"\b\d+(\.\d+)? s\b", "N s", line.replace(str(path), "PATH")) for line in told]
    told = [re.sub(r"(127\.0\.0\.1|\[::1\]):\d+/?", r"\1:PORT", line) for line in told]
    # A busy machine may come to say it again, and then no longer in time to ask what is missing.
    who = [line.split(" has waited for ", 1)[0] for line in told]
    return [line for at, line in enumerate(told) if at == 0 or who[at - 1] != who[at]]


def program(kind, body):
    opened, _ = STORES[kind]
    limit = f"store.set_timeout(datetime.timedelta(seconds={WAIT_S}))"
    start = f"import sys, datetime, polyrank as pr\n{opened}\n{limit}\n"
    return start + textwrap.dedent(body)


@pytest.mark.parametrize("kind", STORES)
def test_which_key_is_not_there_is_said(kind, tmp_path):
    body = """
        store.set("here", b"1")
        store.get("here")
        for wait in (
            lambda: store.wait(["here", "never"]),
            lambda: store.get("never"),
            lambda: store.multi_get(["a", "b", "c", "here", "d"]),
            lambda: store.queue_pop("queue"),
            lambda: store.barrier("all", 2),
        ):
            try:
                wait()
                raise SystemExit("it came")
            except pr.StoreTimeoutError:
                pass
        """
    path = tmp_path / "store"
    words = [sys.executable, "-c", program(kind, body), str(path)]
    env = {**os.environ, "POLYRANK_STALL_REPORT": "0.2"}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    waits = [
        ("needs 'here', 'never'", "nobody has set 'never'"),
        ("needs 'never'", "nobody has set 'never'"),
        ("needs 'a', 'b', 'c', 'here' and 1 more key", "nobody has set 'a', 'b', 'c', 'd'"),
        ("needs an element of the queue 'queue'", "nobody has pushed one to 'queue'"),
        ("is at the barrier 'all'", "not all have come"),
    ]
    expected = []
    for does, missing in waits:
        subject = f"a client of {STORES[kind][1]} that {does}"
        expected.append(f"{subject} has waited for N s; {missing}")
        expected.append(f"{subject} waits no longer, after N s")
    assert said(ended.stderr.splitlines(), path) == expected, ended.stderr


def test_who_needs_a_client_that_another_thread_has_is_told_so():
    body = """
        import threading
        limit = store.timeout
        store.set_timeout(datetime.timedelta(seconds=60))
        waiting = threading.Thread(target=lambda: store.wait(["never"], limit))
        threading.excepthook = lambda failure: None
        waiting.start()
        while waiting.is_alive():
            # Once the other has begun, this takes until it ends.
            store.set("here", b"1")
        """
    words = [sys.executable, "-c", program("TCPStore", body)]
    env = {**os.environ, "POLYRANK_STALL_REPORT": "0.2"}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    busy = "another thread of this process waits for an answer at the same client; give each thread"
    begin = f"a client of {TCP} has waited for N s; {busy} a client of its own"
    assert any(line.startswith(begin) for line in said(ended.stderr.splitlines())), ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="Windows stops no process by a signal")
def test_a_web_socket_store_that_is_stopped_is_named_and_the_wait_is_no_longer():
    shown = "print(server.port, flush=True); sys.stdin.read()"
    serve = f"import sys, polyrank as pr; {SERVER}; {shown}"
    host = subprocess.Popen(
        [sys.executable, "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    wait = """
        import sys, polyrank as pr
        store = pr.WebSocketStore(f"ws://127.0.0.1:{sys.argv[1]}")
        print("open", flush=True)
        sys.stdin.readline()
        try:
            store.wait(["never"], 3)
        except pr.DistError as error:
            print(type(error).__name__, flush=True)
        """
    port = host.stdout.readline().strip()
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(wait), port],
        env={**os.environ, "POLYRANK_STALL_REPORT": "0.2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout.readline() == "open\n"
        host.send_signal(signal.SIGSTOP)
        _, errors = client.communicate("go\n", timeout=60)
    finally:
        host.send_signal(signal.SIGCONT)
        host.communicate(timeout=60)
    first = said(errors.splitlines())[0]
    client = "a client of WebSocketStore(ws://127.0.0.1:PORT)"
    begin = f"{client} that needs 'never' has waited for N s; "
    assert first.startswith(begin) and "does not answer; whoever serves it" in first, errors


def test_many_keys_take_no_longer_than_the_wait():
    body = """
        import time
        keys = [f"key {number}" for number in range(20_000)]
        store.multi_set(keys[1:], [b""] * (len(keys) - 1))
        began = time.monotonic()
        try:
            store.wait(keys)
        except pr.StoreTimeoutError:
            pass
        print(time.monotonic() - began)
        """
    words = [sys.executable, "-c", program("TCPStore", body)]
    env = {**os.environ, "POLYRANK_STALL_REPORT": "0.2"}
    ended = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    first = said(ended.stderr.splitlines())[0]
    assert first.endswith("has waited for N s; nobody has set 'key 0'"), ended.stderr
