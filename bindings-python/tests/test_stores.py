"""The stores from Python: one set of rules for all of them."""

import datetime
import os
import signal
import socket
import threading

import pytest

import polyrank


@pytest.fixture(params=["hash", "file", "tcp", "websocket", "prefix"])
def store(request, tmp_path):
    if request.param == "hash":
        yield polyrank.HashStore()
    elif request.param == "file":
        yield polyrank.FileStore(str(tmp_path / "store"), -1)
    elif request.param == "tcp":
        yield polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    elif request.param == "websocket":
        server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        yield polyrank.WebSocketStore(f"ws://127.0.0.1:{server.port}", timeout=30)
        del server
    else:
        yield polyrank.PrefixStore("prefix", polyrank.HashStore())


def test_values(store):
    assert isinstance(store, polyrank.Store)
    store.set("text", "value")
    store.set(key="bytes", value=b"\x00\xff")
    store.set("array", bytearray(b"ab"))
    assert store.get("text") == b"value"
    assert store.get("bytes") == b"\x00\xff"
    assert store.get("array") == b"ab"
    assert store.add("counter", 2) == 2
    assert store.add("counter", -5) == -3
    assert store.get("counter") == b"-3"
    assert store.check(["text", "counter"]) is True
    assert store.check(["missing"]) is False
    assert store.compare_set("text", "value", "other") == b"other"
    assert store.compare_set("text", "wrong", "third") == b"other"
    store.append("text", "!")
    assert store.get("text") == b"other!"
    store.multi_set(["a", "b"], ["1", b"2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"]
    assert store.num_keys() >= 6
    with pytest.raises(TypeError):
        store.add("text", 1)


def test_waiting(store):
    with pytest.raises(polyrank.StoreTimeoutError) as caught:
        store.wait(["missing"], datetime.timedelta(milliseconds=50))
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, polyrank.DistStoreError)
    assert "missing" in str(caught.value)
    store.set_timeout(datetime.timedelta(milliseconds=60))
    assert store.timeout == datetime.timedelta(milliseconds=60)
    with pytest.raises(polyrank.StoreTimeoutError):
        store.get("missing")
    store.set_timeout(20)
    # A handle serves one request at a time, as c10d's; another one is for another thread.
    twin = store.clone()
    setter = threading.Thread(target=lambda: twin.set("late", "x"))
    setter.start()
    store.wait(["late"])
    setter.join()


def test_wrong_arguments(store):
    for call in (
        lambda: store.set("key"),
        lambda: store.set(1, "value"),
        lambda: store.set("key", 1),
        lambda: store.get(),
        lambda: store.add("key", "1"),
        lambda: store.wait("key"),
        lambda: store.check("key"),
    ):
        with pytest.raises(TypeError, match=r"\("):
            call()


def test_keyboard_interrupt_ends_a_wait(store):
    started = threading.Event()

    def press():
        started.wait()
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        started.set()
        store.wait(["never"], 30)
    presser.join()
    store.set("key", "usable")
    assert store.get("key") == b"usable"


def test_a_handler_in_the_middle_of_a_request_is_refused_another():
    client = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    twin, said = client.clone(), []

    def handle(_signal, _frame):
        try:
            client.set("before the request", "x")
        except ValueError as refused:
            signal.setitimer(signal.ITIMER_REAL, 0)
            said.append(str(refused))
            twin.set("from the handler", "x")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        # Until it comes in the middle of the request.
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        client.wait(["from the handler"], 30)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert "in the middle of another request" in said[0] and "clone()" in said[0]
    assert client.get("from the handler") == b"x"


def test_tcp_clients_and_queues():
    server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    assert server.port > 0
    assert server.host == "127.0.0.1"
    client = polyrank.TCPStore("127.0.0.1", server.port, None, False, timeout=20)
    client.set("key", "value")
    assert server.get("key") == b"value"
    assert server.delete_key("key") is True
    assert server.delete_key("key") is False
    client.queue_push("queue", "1")
    client.queue_push("queue", "2")
    # A push waits for no answer; the answer to what the same client asks next comes after it.
    assert client.queue_len("queue") == 2
    assert server.queue_len("queue") == 2
    assert server.queue_pop("queue") == b"1"
    assert server.queue_pop("queue", block=False) == b"2"
    with pytest.raises(polyrank.QueueEmptyError):
        server.queue_pop("queue", block=False)
    twin = client.clone()
    twin.set("from twin", "x")
    assert client.get("from twin") == b"x"


def test_websocket_and_tcp_clients_share_a_server():
    server = polyrank.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    url = f"ws://127.0.0.1:{server.port}/"
    client = polyrank.WebSocketStore(url)
    assert client.url == url
    client.set("key", "value")
    assert server.get("key") == b"value"
    client.queue_push("queue", "1")
    assert server.queue_pop("queue") == b"1"
    # Its requests do not wait for each other.
    waiting = threading.Thread(target=lambda: client.wait(["late"], 30))
    waiting.start()
    client.set("late", "x")
    waiting.join()
    with pytest.raises(polyrank.InvalidArgumentError, match="ws://host:port"):
        polyrank.WebSocketStore("localhost:1")


def test_a_store_without_a_websocket_side_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # PyTorch's server closes a connection whose first byte is not a request's.
        def hang_up():
            for _ in range(3):
                listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(polyrank.DistNetworkError, match="PyTorch"):
            polyrank.WebSocketStore(url, timeout=30)
        thread.join()


def test_no_server_is_a_network_error():
    with pytest.raises((polyrank.DistNetworkError, polyrank.StoreTimeoutError)):
        polyrank.TCPStore("127.0.0.1", 1, is_master=False, timeout=0.3)


def test_prefix_and_file_attributes(tmp_path):
    below = polyrank.HashStore()
    prefixed = polyrank.PrefixStore("one", below)
    prefixed.set("key", "value")
    assert below.get("one/key") == b"value"
    assert prefixed.underlying_store is below
    assert prefixed.prefix == "one"
    path = str(tmp_path / "store")
    assert polyrank.FileStore(path).path == path
