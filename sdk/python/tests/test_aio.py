import asyncio
import inspect

import pytest

import rumbo


async def connected(daemon):
    return await rumbo.AsyncClient.connect(daemon.socket, app="test")


async def test_streams_an_answer(daemon):
    async with await connected(daemon) as client:
        stream = client.chat("hello", "hi")
        assert [chunk.text async for chunk in stream] == ["Hello", ", ", "world"]
        assert stream.finished.reason == "stop"
        assert (await client.generate("echo", "x").answer()).text == "x"


async def test_many_answers_at_once(daemon):
    async with await connected(daemon) as client:
        answers = await asyncio.gather(*(client.chat("echo", str(i)).answer() for i in range(50)))
        assert [a.text for a in answers] == [str(i) for i in range(50)]


async def test_errors_are_typed_and_retries_follow_the_daemon(daemon):
    async with await connected(daemon) as client:
        with pytest.raises(rumbo.NotFound) as caught:
            await client.chat("nobody", "x").answer()
        assert caught.value.next_step == "See `rumbo models`."
        assert (await client.chat("busy", "x").answer()).text == "Hello, world"
        with pytest.raises(rumbo.DeadlineExceeded):
            await client.chat("silent", "x", timeout=0.05).answer()


async def test_cancelling_the_task_cancels_the_answer(daemon):
    async with await connected(daemon) as client:
        task = asyncio.create_task(client.chat("silent", "x").answer())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.status()).pid == 42


async def test_cancel_ends_the_stream(daemon):
    async with await connected(daemon) as client:
        stream = client.chat("silent", "x")
        asyncio.get_running_loop().call_later(0.05, stream.cancel)
        with pytest.raises(rumbo.Cancelled):
            await stream.answer()


async def test_progress_then_the_result(daemon):
    async with await connected(daemon) as client:
        steps = []
        loaded = await client.load("hello", on_progress=lambda p: steps.append(p.step))
        assert (loaded.instance_id, steps) == ("i-7", ["load"])


def test_both_clients_have_the_same_calls():
    def faces(kind):
        return {name: list(inspect.signature(value).parameters)
                for name, value in vars(kind).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert faces(rumbo.Client) == faces(rumbo.AsyncClient)
