"""python.py SOCKET MODEL TOKENS: what the Python SDK costs its process, as one JSON line."""
import asyncio
import json
import statistics
import sys
import time

begun = time.perf_counter()
import rumbo  # noqa: E402

import_ms = (time.perf_counter() - begun) * 1e3
socket, model, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])


def connect():
    begun = time.perf_counter()
    with rumbo.Client.connect(socket) as client:
        client.status()
    return (time.perf_counter() - begun) * 1e3


cold = connect()
warm = statistics.median(connect() for _ in range(21))
with rumbo.Client.connect(socket) as client:
    client.generate(model, "x", max_tokens=100).answer()
    cpu, wall = time.process_time(), time.perf_counter()
    seen = sum(chunk.tokens for chunk in client.generate(model, "x", max_tokens=tokens))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall


async def asynchronous():
    client = await rumbo.AsyncClient.connect(socket)
    cpu = time.process_time()
    seen = 0
    async for chunk in client.generate(model, "x", max_tokens=tokens):
        seen += chunk.tokens
    return (time.process_time() - cpu) / seen


print(json.dumps({"import_ms": round(import_ms, 1), "cold_ms": round(cold, 2), "warm_ms": round(warm, 2),
                  "cpu_us_per_token": round(cpu / seen * 1e6, 2), "wall_us_per_token": round(wall / seen * 1e6, 2),
                  "async_cpu_us_per_token": round(asyncio.run(asynchronous()) * 1e6, 2), "tokens": seen}))
