import threading
import time

import pytest

import rumbo
from rumbo import types


@pytest.fixture
def client(daemon):
    with rumbo.Client.connect(daemon.socket, app="test") as c:
        yield c


def test_streams_an_answer(client):
    stream = client.chat("hello", "hi")
    assert [chunk.text for chunk in stream] == ["Hello", ", ", "world"]
    assert stream.started.devices == ["cpu0"]
    assert stream.finished.reason == "stop"
    assert stream.finished.usage.completion_tokens == 3
    assert stream.answer().text == "Hello, world"


def test_sends_the_conversation(client):
    turns = [rumbo.Message("system", "be short"), {"role": "user", "content": "to be"}]
    assert client.chat("echo", turns, temperature=0, seed=7).answer().text == "to be"
    assert client.generate("echo", "or not", sampling=rumbo.Sampling(max_tokens=3)).answer().text == "or not"


def test_refuses_an_unknown_sampling_option(client):
    with pytest.raises(TypeError, match="temprature"):
        client.chat("echo", "x", temprature=0)


def test_errors_are_typed(client):
    with pytest.raises(rumbo.NotFound) as caught:
        client.chat("nobody", "x").answer()
    error = caught.value
    assert (error.code, error.reason) == ("NOT_FOUND", "MODEL_NOT_FOUND")
    assert error.message == 'no model is called "nobody"'
    assert error.next_step == "See `rumbo models`."
    assert error.retry_after is None
    with pytest.raises(rumbo.ResourceExhausted):
        client.load("big")
    with pytest.raises(rumbo.RumboError) as caught:
        client.rerank("hello", "q", ["d"])
    assert caught.value.reason == "NOT_IMPLEMENTED"


def test_keeps_what_came_before_a_crash(client):
    stream = client.chat("crash", "x")
    assert next(stream).text == "Hel"
    with pytest.raises(rumbo.Unavailable) as caught:
        next(stream)
    assert caught.value.reason == "ENGINE_CRASHED"


def test_a_stream_without_its_end_is_an_error(client):
    with pytest.raises(rumbo.RumboError, match="without its last message"):
        client.chat("cut", "x").answer()


def test_retries_where_the_daemon_says_when(client):
    assert client.chat("busy", "x").answer().text == "Hello, world"


def test_cancel_from_another_thread(client):
    stream = client.chat("silent", "x")
    threading.Timer(0.05, stream.cancel).start()
    with pytest.raises(rumbo.Cancelled):
        next(stream)


def test_timeout(client):
    before = time.monotonic()
    with pytest.raises(rumbo.DeadlineExceeded):
        client.chat("silent", "x", timeout=0.05).answer()
    assert time.monotonic() - before < 5


def test_plans_devices_and_lists(client):
    plan = client.plan("hello", workload=rumbo.Workload(sessions=4), overrides=rumbo.PlanOverrides(engine="fake"))
    assert plan.chosen.predicted.decode_tok_s == 85.5
    assert plan.chosen.predicted.ttft_ms is None
    assert plan.chosen.settings.extra == {"numa": "off"}
    big = client.plan("big")
    assert big.chosen is None and big.refusal.nearest.context == 512
    pools = client.devices().pools
    assert pools[0].free_bytes == 24 << 30 and pools[1].total_bytes is None
    assert client.instances()[0].pid is None
    assert [m.name for m in client.models()][0] == "hello"
    assert client.model("hello").metadata == {"general.name": "x"}
    assert client.status().version == "9.9.9"
    assert client.doctor()[0].severity == "warning"
    assert client.explain("hello").measured.decode_tok_s == 90
    assert client.unload("hello") == ["i-7"]
    assert client.tokenize("hello", "ab").pieces == [b"a", b"b"]
    assert len(client.embed("hello", ["a", "b"])) == 2


def test_progress_then_the_result(client):
    steps = []
    loaded = client.load("hello", on_progress=lambda p: steps.append(p.step))
    assert loaded.instance_id == "i-7" and loaded.plan.chosen.settings.mmap is True
    model = client.import_model("/x", "hello", on_progress=lambda p: steps.append((p.step, p.fraction)))
    assert model.variants[0].size_bytes == 98_000_000_000
    assert steps == ["load", ("hash", 0.5)]


def test_says_why_nobody_answers(folder, daemon):
    with pytest.raises(rumbo.DaemonUnreachable, match="there is no socket"):
        rumbo.Client.connect(str(folder / "none.sock"))
    (folder / "file").write_text("x")
    with pytest.raises(rumbo.DaemonUnreachable, match="is not a socket"):
        rumbo.Client.connect(str(folder / "file"))
    daemon.stop()
    with pytest.raises(rumbo.DaemonUnreachable, match="nobody listens"):
        rumbo.Client.connect(daemon.socket)
    with pytest.raises(rumbo.InvalidArgument):
        rumbo.Client.connect("/" + "x" * 200)


def test_a_daemon_that_goes_away_is_unreachable(client, daemon):
    assert client.status().pid == 42
    daemon.stop()
    with pytest.raises(rumbo.DaemonUnreachable):
        client.status()


def test_starts_a_daemon(stopped):
    with rumbo.Client.connect(stopped.socket, start_daemon=True, daemon_program=stopped.program) as client:
        assert client.chat("hello", "x").answer().text == "Hello, world"


def test_tells_what_the_daemon_said_before_it_ended(stopped, monkeypatch):
    monkeypatch.setenv("FAKE_RUMBOD", "fail")
    with pytest.raises(rumbo.DaemonUnreachable, match="the disk is full"):
        rumbo.Client.connect(stopped.socket, start_daemon=True, daemon_program=stopped.program)


def test_the_socket_is_where_the_daemon_puts_it(monkeypatch, folder):
    from rumbo._connect import default_socket
    monkeypatch.delenv("RUMBO_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert default_socket() == f"{folder}/rumbo/rumbo.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/no/such/folder")
    assert default_socket().startswith("/tmp/rumbo-")
    monkeypatch.setenv("RUMBO_SOCKET", "/x.sock")
    assert default_socket() == "/x.sock"


def test_types_are_named_like_the_wire():
    import dataclasses
    from rumbo import _wire
    other = {"Status": "GetStatusResponse", "ModelDetails": "GetModelResponse", "Explanation": "ExplainResponse",
             "Tokens": "TokenizeResponse"}
    for name, kind in vars(types).items():
        if not dataclasses.is_dataclass(kind) or name == "Answer":
            continue
        fields = set(_wire.message(other.get(name, name)).DESCRIPTOR.fields_by_name)
        own = {f.name for f in dataclasses.fields(kind)} - ({"text"} if name == "Message" else set())
        assert own <= fields, name


def test_the_example_streams_a_chat(daemon):
    import os
    import pathlib
    import subprocess
    import sys
    example = pathlib.Path(__file__).parents[1] / "examples" / "chat.py"
    out = subprocess.run([sys.executable, example, "hello", "hi"], env=dict(os.environ, RUMBO_SOCKET=daemon.socket),
                         capture_output=True, text=True, timeout=60)
    assert (out.returncode, out.stdout) == (0, "Hello, world\n123.4 tokens/s\n"), out.stderr


@pytest.mark.parametrize("name", ["cpp", "py"])
def test_the_docs_show_the_examples_as_they_are(name):
    import pathlib
    root = pathlib.Path(__file__).parents[3]
    source = {"cpp": root / "sdk/cpp/examples/chat.cpp", "py": root / "sdk/python/examples/chat.py"}[name]
    assert source.read_text().strip() in (root / "docs/sdk.md").read_text()


def test_answers_of_a_given_shape(client):
    import json

    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    turn = json.dumps({"name": "Ana", "age": 3})
    assert client.chat_as("echo", turn, Person) == Person(name="Ana", age=3)
    assert client.chat_as("echo", "[1, 2]", list[int]) == [1, 2]
    assert client.chat_as("echo", '{"a": 1}', {"type": "object"}) == {"a": 1}
    for wrong in ("hello", "echo"):
        with pytest.raises(rumbo.WrongShape) as caught:
            client.chat_as(wrong, '{"name": 1}', Person)
        assert caught.value.text in ("Hello, world", '{"name": 1}')


def test_streams_leave_nothing_behind(client):
    import gc
    import tracemalloc

    def round_():
        for _ in range(100):
            client.chat("hello", "x").answer()
            for _chunk in client.chat("hello", "x"):
                break  # a stream that is left early
            with pytest.raises(rumbo.NotFound):
                client.chat("nobody", "x").answer()
        gc.collect()

    tracemalloc.start()
    try:
        round_()
        before = tracemalloc.get_traced_memory()[0]
        round_()
        round_()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, f"600 calls left {grown} bytes"


def test_a_forked_process_connects_anew(daemon):
    """gRPC's connections do not survive a fork: the child makes its own."""
    import os

    child = os.fork()
    if child == 0:
        try:
            with rumbo.Client.connect(daemon.socket) as own:
                os._exit(0 if own.chat("hello", "x").answer().text == "Hello, world" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
