"""./dev bench http: the HTTP front beside llama-server's, in one run: same model, same machine, interleaved.

What both do: answer trivial requests, tokenize, give one token of a known prompt, stream, hold idle connections. What only
Rumbo's budget asks for: the daemon's CPU per request and per streamed token, with an engine that costs nothing.
"""
import argparse
import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import serving  # noqa: E402

IDLE = 10_000
IDLE_BOTH = 1_000


def latencies(port, method, path, body, count):
    """Microseconds of `count` requests, one after the other on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = json.dumps(body).encode() if body is not None else None
    out = []
    for i in range(count + 10):
        begin = time.perf_counter()
        connection.request(method, path, data, {"Content-Type": "application/json"} if data else {})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {text[:200]}")
        if i >= 10:
            out.append((time.perf_counter() - begin) * 1e6)
    connection.close()
    return out


async def per_second(port, path, connections, seconds):
    """GETs per second over keep-alive connections."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    end = time.perf_counter() + seconds
    done = 0

    async def one():
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            writer.write(request)
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):  # it serves so many requests and closes
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += 1
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(connections)])
    return done / (time.perf_counter() - begin)


async def hold_idle(port, pid, count):
    """(RSS in MB with `count` idle connections that each were served once, RSS before, latency of another client in us)."""
    before = serving.rss_mb(pid)
    writers = []
    request = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head:
            raise RuntimeError(head.decode())
        writers.append(writer)

    for at in range(0, count, 200):
        await asyncio.gather(*[one() for _ in range(min(200, count - at))])
    rss = serving.rss_mb(pid)
    loop = asyncio.get_running_loop()
    other = statistics.median(await loop.run_in_executor(None, latencies, port, "GET", "/health", None, 200))
    for writer in writers:
        writer.close()
    return rss, before, other


def pin(pids, cpus):
    """All threads of the processes, and this one, on these CPUs."""
    for pid in [os.getpid(), *pids]:
        for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread.name), cpus)


def row(name, ours, theirs, unit):
    print(f"| {name} | {ours:.0f} {unit} | {'-' if theirs is None else f'{theirs:.0f} {unit}'} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--packs", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.name = "http"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    serving.header(args)
    model = args.models / "smollm2.gguf"
    daemon = serving.Daemon(args.bin)
    peer = serving.LlamaServer(args.packs / "native", model, 1, 2048, args.threads)
    ours, theirs = {}, {}
    try:
        daemon.cli("import", model, "--name", "m")
        daemon.cli("load", "m", "--sessions", 1, "--context", 2048, "--threads", args.threads)
        prompt = {"model": "m", "prompt": "Once upon a time", "max_tokens": 1, "temperature": 0, "cache_prompt": True}
        cases = [("GET /health, one connection, p50", "GET", "/health", None, 300),
                 ("POST /tokenize, p50", "POST", "/tokenize", {"model": "m", "content": "Once upon a time"}, 200),
                 ("one token of a known prompt, p50", "POST", "/v1/completions", prompt, 30)]
        worker = json.loads(daemon.cli("ps", "--json"))["instances"][0]["pid"]
        our_pids, their_pids = [daemon.process.pid, worker], [peer.process.pid]
        sides = ((ours, daemon.port, our_pids, their_pids), (theirs, peer.port, their_pids, our_pids))
        every_cpu = os.sched_getaffinity(0)
        for _ in range(args.rounds):
            for into, port, mine, others in sides:
                # Idle threads that spin for a while after their work must not count against the other side.
                for pid in others:
                    os.kill(pid, signal.SIGSTOP)
                # What computes nothing goes on one CPU: on a busy machine a thread that wakes on another waits for whole
                # time slices, which says nothing about either server.
                pin(mine, {0})
                for name, method, path, body, count in cases[:2]:
                    into.setdefault(name, []).append(statistics.median(latencies(port, method, path, body, count)))
                into.setdefault("GET /health, 16 connections, per second", []).append(
                    asyncio.run(per_second(port, "/health", 16, 1.0)))
                pin(mine, every_cpu)
                for name, method, path, body, count in cases[2:]:
                    into.setdefault(name, []).append(statistics.median(latencies(port, method, path, body, count)))
                start, times = asyncio.run(serving.stream(port, "m", "Tell me a long story.", 96))
                into.setdefault("streamed tokens/s, one session", []).append((len(times) - 1) / (times[-1] - times[0]))
                for pid in others:
                    os.kill(pid, signal.SIGCONT)
        print("| what | Rumbo | llama-server |\n|---|---|---|")
        for name in ours:
            row(name, statistics.median(ours[name]), statistics.median(theirs[name]), "us" if "p50" in name else "")
        a = asyncio.run(hold_idle(daemon.port, daemon.process.pid, IDLE_BOTH))
        try:
            b = asyncio.run(asyncio.wait_for(hold_idle(peer.port, peer.process.pid, IDLE_BOTH), 60))
        except Exception as error:  # it has a thread per connection and a bound on them
            b = None
            print(f"llama-server did not hold {IDLE_BOTH} connections: {type(error).__name__}")
        row(f"memory of {IDLE_BOTH} idle connections, kB each", (a[0] - a[1]) * 1e3 / IDLE_BOTH,
            None if b is None else (b[0] - b[1]) * 1e3 / IDLE_BOTH, "")
    finally:
        peer.close()
        daemon.close()

    print("\n| budget | measured | must |\n|---|---|---|")
    daemon = serving.Daemon(args.bin)
    try:
        rss, before, other = asyncio.run(hold_idle(daemon.port, daemon.process.pid, IDLE))
        print(f"| {IDLE} idle connections, RSS of the daemon | {rss:.0f} MB (before: {before:.0f}; another client's p50 "
              f"meanwhile: {other:.0f} us) | <= 200 MB |", flush=True)
        daemon.cli("load", "fake", "--engine", "fake", "--sessions", 32)

        def cost(tokens, rounds):
            asyncio.run(serving.round_of(daemon.port, "fake", ["hello"] * 16, tokens))
            begin = serving.cpu_seconds(daemon.process.pid)
            for _ in range(rounds):
                asyncio.run(serving.round_of(daemon.port, "fake", ["hello"] * 16, tokens))
            return (serving.cpu_seconds(daemon.process.pid) - begin) / (16 * tokens * rounds) * 1e6

        print(f"| daemon CPU per request, a token each | {cost(1, 100):.0f} us | <= 250 us |", flush=True)
        print(f"| daemon CPU per streamed token, 16 streams | {cost(2000, args.rounds):.1f} us | <= 15 us |", flush=True)
    finally:
        daemon.close()
    print(f"\nload after {os.getloadavg()[0]:.1f}; commit "
          + subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
