#!/usr/bin/env python3
"""SIGKILLs of workers under load, of the daemon, and clients that vanish. Seeds are fixed; prints what it counted.

worker   200 SIGKILLs of the fake engine's worker under 12 streams: every request ends exactly once, no token is lost,
         repeated or out of order, and the daemon serves on.
daemon   50 SIGKILLs of the daemon with workers running: nothing is left after 2 s, and the state is whole.
clients  1,000 disconnects at random points: the slots are free again at once.
"""
import asyncio
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import MODELS, Daemon, alive, complete, wait_until  # noqa: E402

TOKENS = 60


def check_tokens(text, whole):
    """The fake engine counts: "1 2 3 ..."."""
    numbers = [int(w) for w in text.split()]
    if not whole and numbers and text and not text[-1].isspace():
        numbers = numbers[:-1]  # the last number may have been cut
    assert numbers == list(range(1, len(numbers) + 1)), f"tokens out of order: {text[:200]!r}"
    if whole:
        assert len(numbers) == TOKENS, f"{len(numbers)} tokens instead of {TOKENS}"


async def worker_kills(daemon, kills, rng):
    counts = {"whole": 0, "cut": 0, "refused": 0}
    stop = asyncio.Event()

    async def client():
        while not stop.is_set():
            body = {"model": "fake", "prompt": "<<token_us=1500>> go", "max_tokens": TOKENS}
            text, finish, error = await complete(daemon.port, body)
            assert bool(finish) != bool(error), f"not exactly one end: {finish!r} {error!r} after {text[-60:]!r}"
            check_tokens(text, finish is not None)
            counts["whole" if finish else "cut" if text else "refused"] += 1
            if error and not text:
                await asyncio.sleep(0.02)

    clients = [asyncio.create_task(client()) for _ in range(12)]
    done = 0
    while done < kills:
        await asyncio.sleep(rng.uniform(0.03, 0.15))
        pid = await asyncio.to_thread(daemon.worker_pid, "fake")
        if pid is None or not alive(pid):
            continue
        before = counts["whole"]
        os.kill(pid, signal.SIGKILL)
        done += 1
        if done % 10 == 0:  # let answers come to an end in between
            end = time.monotonic() + 10
            while counts["whole"] == before and time.monotonic() < end:
                await asyncio.sleep(0.02)
            assert counts["whole"] > before, f"no answer was completed after kill {done}"
    stop.set()
    await asyncio.wait_for(asyncio.gather(*clients), 60)
    text, finish, _ = await complete(daemon.port, {"model": "fake", "prompt": "after", "max_tokens": TOKENS})
    assert finish, "no answer after the kills"
    check_tokens(text, True)
    return counts


def worker(rng):
    with Daemon() as daemon:
        daemon.cli("load", "fake", "--engine", "fake", "--sessions", 8)
        counts = asyncio.run(worker_kills(daemon, int(os.environ.get("RUMBO_KILLS", "200")), rng))
        assert daemon.process.poll() is None, "the daemon died"
        print("worker kills done, requests", counts)


def daemon(rng):
    kills = int(os.environ.get("RUMBO_DAEMON_KILLS", "50"))
    real = MODELS / "smollm2.gguf"
    d = Daemon()
    if real.exists():
        d.cli("import", real, "--name", "m")
        d.cli("pin", "m")
    orphans = 0
    for k in range(kills):
        d.cli("load", "fake", "--engine", "fake")
        if real.exists() and k % 10 == 0:
            d.cli("load", "m")
        pids = [i["pid"] for i in d.instances() if i["pid"]]
        assert pids

        async def under_load():
            streams = [asyncio.create_task(complete(d.port, {"model": "fake", "prompt": "<<token_us=500>>", "max_tokens": 2000}))
                       for _ in range(4)]
            await asyncio.sleep(rng.uniform(0, 0.08))
            d.kill()
            await asyncio.gather(*streams, return_exceptions=True)

        asyncio.run(under_load())
        if not wait_until(lambda: not any(alive(p) for p in pids), 2):
            orphans += sum(alive(p) for p in pids)
        d.start()
        if real.exists():
            models = d.json("models")["models"]
            assert [m["name"] for m in models] == ["m"] and models[0]["variants"][0]["state"] == "complete", models
            # What is pinned is there again without anybody asking.
            assert wait_until(lambda: any(i["model"] == "m" for i in d.instances()), 1), d.instances()
    d.close()
    print(f"daemon kills: {kills}, orphans after 2 s: {orphans}")
    assert orphans == 0


def clients(rng):
    with Daemon() as d:
        d.cli("load", "fake", "--engine", "fake", "--sessions", 8)

        async def vanish():
            for _ in range(50):
                await asyncio.gather(*[
                    complete(d.port, {"model": "fake", "prompt": "<<token_us=300>>", "max_tokens": 100000}, stop_after=rng.randint(1, 30))
                    for _ in range(20)])

        asyncio.run(vanish())
        free = lambda: all(i["running"] == 0 and i["queue"] == 0 for i in d.instances())  # noqa: E731
        assert wait_until(free, 1), d.instances()
        text, finish, _ = asyncio.run(complete(d.port, {"model": "fake", "prompt": "after", "max_tokens": TOKENS}))
        check_tokens(text, finish is not None)
        print("disconnects: 1000, slots free")


if __name__ == "__main__":
    which = sys.argv[1]
    {"worker": worker, "daemon": daemon, "clients": clients}[which](random.Random(20261130))
