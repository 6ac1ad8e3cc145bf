#!/usr/bin/env python3
"""Benchmarks of the daemon against llama-server and raw libllama, both sides interleaved in one run.

Every figure is a ratio of medians of at least five rounds, taken on the same machine in the same minutes; the absolute
numbers beside it are for orientation only. Prints Markdown rows for docs/benchmarks.md and, with --json FILE, the raw data.
"""
import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

WORDS = ("river stone lamp copper window garden signal paper engine winter market bridge letter cloud harbor silver "
         "forest mirror planet thunder ocean ladder castle violin").split()
CLK = os.sysconf("SC_CLK_TCK")


def words(rng, n):
    return " ".join(rng.choice(WORDS) for _ in range(n))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLK


def rss_mb(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def stream(port, model, prompt, predict):
    """One streamed completion; returns (start, times of chunks with text)."""
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": predict, "temperature": 0, "stream": True,
                       "ignore_eos": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    start = time.perf_counter()
    writer.write((f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body)
    await writer.drain()
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    if status != 200:
        raise RuntimeError(f"status {status}: {(await reader.read(300)).decode(errors='replace')}")
    times = []
    while line := await reader.readline():
        if line.startswith(b"data:") and b'"text":""' not in line and b"[DONE]" not in line and b'"text":' in line:
            times.append(time.perf_counter())
    writer.close()
    return start, times


async def round_of(port, model, prompts, predict):
    begin = time.perf_counter()
    answers = await asyncio.gather(*[stream(port, model, p, predict) for p in prompts])
    wall = time.perf_counter() - begin
    ttft = sorted((t[0] - s) * 1e3 for s, t in answers)
    gaps = sorted((b - a) * 1e3 for _, t in answers for a, b in zip(t, t[1:]))
    decode = [(len(t) - 1) / (t[-1] - t[0]) for _, t in answers if len(t) > 1]
    return {"agg": sum(len(t) for _, t in answers) / wall, "ttft_p50": statistics.median(ttft), "ttft_p95": ttft[int(.95 * (len(ttft) - 1))],
            "itl_p95": gaps[int(.95 * (len(gaps) - 1))] if gaps else 0.0, "decode": statistics.median(decode) if decode else 0.0}


class Daemon:
    def __init__(self, bin_dir, http=True):
        self.bin = bin_dir
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="rumbo-bench-"))
        self.port = free_port()
        self.env = dict(os.environ, RUMBO_SOCKET=str(self.dir / "s"))
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [self.bin / "rumbod", "--socket", self.dir / "s", "--http", f"127.0.0.1:{self.port}" if http else "off",
             "--state-dir", self.dir / "state", "--cache-dir", self.dir / "cache"],
            stdout=subprocess.DEVNULL, stderr=open(self.dir / "log", "wb"), env=self.env)
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.connect(str(self.dir / "s"))
                break
            if self.process.poll() is not None:
                raise RuntimeError((self.dir / "log").read_text())
            time.sleep(0.001)
        self.cli("ps")
        self.start_ms = (time.perf_counter() - begin) * 1e3

    def cli(self, *args):
        r = subprocess.run([self.bin / "rumbo", *map(str, args)], env=self.env, capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(f"rumbo {' '.join(map(str, args))}: {r.stderr}")
        return r.stdout

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.dir, ignore_errors=True)


class LlamaServer:
    def __init__(self, pack, model, slots, context, threads, flags=""):
        self.port = free_port()
        env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG")}
        self.process = subprocess.Popen(
            [pack / "bin/llama-server", "-m", model, "--port", str(self.port), "--host", "127.0.0.1", "-c", str(context),
             "-np", str(slots), "-t", str(threads), *flags.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        for _ in range(600):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1)
                return
            time.sleep(0.1)
        raise RuntimeError("llama-server did not start")

    def close(self):
        self.process.terminate()
        self.process.wait(20)


def header(args):
    pack = dict(line.split("=", 1) for line in (args.packs / "native/PACK").read_text().splitlines() if "=" in line)
    cpu = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{args.name}: {cpu}, {os.cpu_count()} cores; rumbo {commit}; llama.cpp {pack['version']} ({pack['commit']}), native pack, "
          f"CPU backend, {args.threads} threads; {args.rounds} rounds, medians; load before {os.getloadavg()[0]:.1f}\n", flush=True)


def row(name, ours, theirs, ratio, must, better):
    ok = ratio >= must if better == ">=" else ratio <= must
    print(f"| {name} | {ours} | {theirs} | {ratio:.3f} | {better} {must} | {'yes' if ok else '**no**'} |", flush=True)
    return ok


TABLE = "| what | Rumbo | against | ratio | must | holds |\n|---|---|---|---|---|---|"


# What can make a difference to llama-server in some scene; the best is taken. Windowed models keep a prefix for
# later prompts only with a full cache.
PEER_FLAGS = ("", "--cache-ram 0", "--cache-ram 0 --kv-unified", "--cache-ram 0 --swa-full")


def weights_file(args, name):
    """A name in --models, a path, or NAME-bf16, made from NAME once."""
    path = pathlib.Path(name) if pathlib.Path(name).exists() else args.models / f"{name}.gguf"
    if not path.exists() and name.endswith("-bf16"):
        subprocess.run([args.packs / "native/bin/llama-quantize", "--allow-requantize", args.models / f"{name[:-5]}.gguf",
                        str(path) + ".part", "BF16"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.rename(str(path) + ".part", path)
    return path


def prompts_of(k, sessions, prompt_words, shared_words, same_prefix):
    rng = random.Random(1000 + k)
    shared = words(random.Random(7 if same_prefix else 70 + k), shared_words)
    return [(shared + " " + words(rng, prompt_words)).strip() for _ in range(sessions)]


def best_peer_flags(args, model, sessions, context, make_prompts):
    """The fastest of PEER_FLAGS in one warm round each, unless --peer names flags."""
    if args.peer is not None:
        return args.peer
    rates = {}
    for flags in PEER_FLAGS:
        server = LlamaServer(args.packs / "native", model, sessions, context, args.threads, flags)
        try:
            for k in (0, 1):
                rates[flags] = asyncio.run(round_of(server.port, "m", make_prompts(k), args.predict))["agg"]
        finally:
            server.close()
    return max(rates, key=rates.get)


def compare(args, weights, sessions, prompt_words, shared_words, context, data, same_prefix=True):
    """Interleaved rounds of one scene; returns medians of both sides."""
    model = weights_file(args, weights)

    def make_prompts(k):
        return prompts_of(k, sessions, prompt_words, shared_words, same_prefix)

    flags = best_peer_flags(args, model, sessions, context, make_prompts)
    daemon = Daemon(args.bin)
    server = LlamaServer(args.packs / "native", model, sessions, context, args.threads, flags)
    try:
        daemon.cli("import", model, "--name", "m")
        daemon.cli("load", "m", "--context", context, "--sessions", sessions, "--threads", args.threads)
        sides = {"rumbo": (daemon.port, []), "llama-server": (server.port, [])}
        for k in range(args.rounds + 1):
            order = list(sides.items())
            for name, (port, results) in (order if k % 2 else reversed(order)):
                result = asyncio.run(round_of(port, "m", make_prompts(k), args.predict))
                if k > 0:  # the first warms both
                    results.append(result)
        medians = {name: {key: statistics.median(r[key] for r in results) for key in results[0]} for name, (_, results) in sides.items()}
        data.append({"sessions": sessions, "shared": shared_words, "weights": weights, "peer_flags": flags, **{n: r for n, (_, r) in sides.items()}})
        medians["llama-server"]["flags"] = flags or "its defaults"
        return medians["rumbo"], medians["llama-server"]
    finally:
        daemon.close()
        server.close()


def parity(args, weights):
    """Both sides decode alike without a server: the library is the same."""
    model = weights_file(args, weights)
    raw, peer = [], []
    for k in range(args.rounds):
        out = subprocess.run([args.bin / "engines/llamacpp-native/rumbo-llama-raw", model, "96", str(args.threads), "4096", "--ignore-eos"],
                             input=words(random.Random(k), 10) + "\n", capture_output=True, text=True, check=True)
        raw.append(json.loads(out.stderr)["decode_tok_s"])
        out = subprocess.run([args.packs / "native/bin/llama-bench", "-m", model, "-t", str(args.threads), "-p", "0", "-n", "96", "-r", "1", "-o", "json"],
                             capture_output=True, text=True, check=True)
        peer.append(json.loads(out.stdout)[0]["avg_ts"])
    a, b = statistics.median(raw), statistics.median(peer)
    print(f"| raw decode, {pathlib.Path(weights).stem}: our loop / llama-bench | {a:.1f} | {b:.1f} | {a / b:.3f} | 0.9 to 1.1 | "
          f"{'yes' if 0.9 <= a / b <= 1.1 else '**no**'} |", flush=True)


def bench_single(args, data):
    print(TABLE)
    model = args.models / "gemma.gguf"
    raw_binary = args.bin / "engines/llamacpp-native/rumbo-llama-raw"

    daemon = Daemon(args.bin)
    try:
        daemon.cli("import", model, "--name", "m")
        daemon.cli("load", "m", "--context", 4096, "--sessions", 1, "--threads", args.threads)
        ours, raw = [], []
        for k in range(args.rounds + 1):
            prompt = words(random.Random(k), 100)
            ours.append(asyncio.run(round_of(daemon.port, "m", [prompt], 256))["decode"])
            out = subprocess.run([raw_binary, model, "256", str(args.threads), "4096", "--ignore-eos"], input=prompt + "\n",
                                 capture_output=True, text=True, check=True)
            raw.append(json.loads(out.stderr)["decode_tok_s"])
        a, b = statistics.median(ours[1:]), statistics.median(raw[1:])
        row("one session: decode tokens/s / raw libllama loop", f"{a:.1f}", f"{b:.1f}", a / b, 0.97, ">=")
        data.append({"decode": ours, "raw": raw})
    finally:
        daemon.close()

    a, b = compare(args, "gemma", 1, 100, 0, 4096, data)
    row("one session: tokens/s end to end / llama-server", f"{a['agg']:.1f}", f"{b['agg']:.1f}", a["agg"] / b["agg"], 1.0, ">=")
    row("one session: TTFT ms / llama-server", f"{a['ttft_p50']:.0f}", f"{b['ttft_p50']:.0f}", a["ttft_p50"] / b["ttft_p50"], 1.0, "<=")

    starts = []
    for _ in range(args.rounds):
        d = Daemon(args.bin)
        starts.append(d.start_ms)
        d.close()
    value = statistics.median(starts)
    row("daemon start to first answered RPC, ms", f"{value:.0f}", "limit", value, 200, "<=")

    daemon = Daemon(args.bin)
    try:
        time.sleep(3)
        before = cpu_seconds(daemon.process.pid)
        time.sleep(60)
        idle = (cpu_seconds(daemon.process.pid) - before) / 60 * 100
        row("idle CPU over 60 s, %", f"{idle:.3f}", "limit", idle, 0.1, "<=")
        rss = rss_mb(daemon.process.pid)
        row("idle RSS, MB", f"{rss:.1f}", "limit", rss, 40, "<=")

        daemon.cli("import", model, "--name", "m")
        ours, raw = [], []
        for _ in range(args.rounds + 1):
            drop_caches()
            begin = time.perf_counter()
            daemon.cli("load", "m", "--context", 4096, "--sessions", 1, "--threads", args.threads)
            ours.append((time.perf_counter() - begin) * 1e3)
            daemon.cli("unload", "m")
            while '"instances": []' not in daemon.cli("ps", "--json"):
                time.sleep(0.01)
            drop_caches()
            begin = time.perf_counter()
            subprocess.run([raw_binary, model, "1", str(args.threads), "4096"], input="", capture_output=True, text=True, check=True)
            raw.append((time.perf_counter() - begin) * 1e3)
        a, b = statistics.median(ours[1:]), statistics.median(raw[1:])
        row("cold load through the daemon / raw libllama load, ms", f"{a:.0f}", f"{b:.0f}", a / b, 1.15, "<=")
        data.append({"starts": starts, "load": ours, "raw_load": raw})
    finally:
        daemon.close()


def drop_caches():
    """Files come from the disk again, for both sides alike; without the right to do so both read from the page cache."""
    subprocess.run(["sync"], check=False)
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")


def bench_sessions(args, data, shared):
    print(TABLE)
    for weights in args.weights:
        parity(args, weights)
        # A prefix that is new in each round must be computed, once; one that was there before need not be.
        scenes = (("shared prefix of 400 words", 20, 400, False), ("the same, known from before", 20, 400, True)) if shared else (("distinct prompts", 100, 0, False),)
        for title, own, common, same in scenes:
            if args.scene and args.scene not in title:
                continue
            a, b = compare(args, weights, 16, own, common, 16384, data, same)
            label = f"16 sessions, {title}, {pathlib.Path(weights).stem}"
            print(f"| llama-server's flags | | {b['flags']} | | | |")
            counts = not same
            row(f"{label}: aggregate tokens/s", f"{a['agg']:.1f}", f"{b['agg']:.1f}", a["agg"] / b["agg"], (2.0 if shared else 0.97) if counts else 1.0, ">=")
            row(f"{label}: median TTFT ms", f"{a['ttft_p50']:.0f}", f"{b['ttft_p50']:.0f}", a["ttft_p50"] / b["ttft_p50"],
                (0.18 if shared else 0.85) if counts else 1.0, "<=")
            row(f"{label}: p95 TTFT ms", f"{a['ttft_p95']:.0f}", f"{b['ttft_p95']:.0f}", a["ttft_p95"] / b["ttft_p95"], 1.2, "<=")
            row(f"{label}: p95 inter-token ms", f"{a['itl_p95']:.0f}", f"{b['itl_p95']:.0f}", a["itl_p95"] / b["itl_p95"], 1.2, "<=")


def chat_request(port, messages, predict):
    body = json.dumps({"model": "m", "messages": messages, "max_tokens": predict, "temperature": 0}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=120))


async def all_turns(port, conversations, predict):
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*[loop.run_in_executor(None, chat_request, port, c, predict) for c in conversations])


def bench_chat(args, data):
    """Eight conversations of ten turns on four slots: each turn half of them must leave the KV cache and come back."""
    print(TABLE)
    model = weights_file(args, "smollm2")
    daemon = Daemon(args.bin)
    try:
        daemon.cli("import", model, "--name", "m")
        daemon.cli("load", "m", "--context", 4 * 2048, "--sessions", 4, "--threads", args.threads)
        rng = random.Random(5)
        conversations = [[{"role": "system", "content": "You keep a list. " + words(rng, 60)}] for _ in range(8)]
        before = [0] * 8
        new = computed = 0
        for turn in range(10):
            for c in conversations:
                c.append({"role": "user", "content": words(rng, 60)})
            for i, answer in enumerate(asyncio.run(all_turns(daemon.port, conversations, 24))):
                usage = answer["usage"]
                if turn > 0:
                    new += usage["prompt_tokens"] - before[i]
                    computed += usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
                before[i] = usage["prompt_tokens"] + usage["completion_tokens"]
                conversations[i].append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            time.sleep(1)  # people read
        row("8 conversations of 10 turns on 4 slots: prompt tokens computed / new", computed, new, computed / new, 1.05, "<=")
        data.append({"computed": computed, "new": new})
    finally:
        daemon.close()


async def chats_beside(port, k, long_words, predict):
    """Eight short chats; half a second after their start one long prompt, if any. Gaps of the chats in ms, TTFT of the long prompt."""
    chats = [asyncio.create_task(stream(port, "m", words(random.Random(100 * k + i), 40), predict)) for i in range(8)]
    long_ttft = None
    if long_words:
        await asyncio.sleep(0.5)
        start, times = await stream(port, "m", words(random.Random(7000 + k), long_words), 1)
        long_ttft = (times[0] - start) * 1e3
    answers = await asyncio.gather(*chats)
    return sorted((b - a) * 1e3 for _, t in answers for a, b in zip(t, t[1:])), long_ttft


def bench_long(args, data):
    print(TABLE)
    model = weights_file(args, args.weights[0])
    context = 9 * 8192
    daemon = Daemon(args.bin)
    server = LlamaServer(args.packs / "native", model, 9, context, args.threads, args.peer or "")
    try:
        daemon.cli("import", model, "--name", "m")
        daemon.cli("load", "m", "--context", context, "--sessions", 9, "--threads", args.threads)
        sides = {"rumbo": daemon.port, "llama-server": server.port}
        results = {name: {"alone": [], "beside": [], "largest": [], "long": []} for name in sides}
        for k in range(args.rounds + 1):
            for name, port in (list(sides.items()) if k % 2 else reversed(list(sides.items()))):
                alone, _ = asyncio.run(chats_beside(port, 2 * k, 0, 128))
                gaps, ttft = asyncio.run(chats_beside(port, 2 * k + 1, args.long_words, 128))
                if k > 0:
                    p95 = [g[int(.95 * (len(g) - 1))] for g in (alone, gaps)]
                    for key, value in zip(("alone", "beside", "largest", "long"), (*p95, gaps[-1], ttft)):
                        results[name][key].append(value)
        for name, r in results.items():
            m = {key: statistics.median(v) for key, v in r.items()}
            if name == "rumbo":
                row("8 short chats beside a prompt of 6,000 tokens: p95 inter-token ms, with / without", f"{m['beside']:.0f}", f"{m['alone']:.0f}", m["beside"] / m["alone"], 2.0, "<=")
            else:
                print(f"| llama-server: the same | {m['beside']:.0f} | {m['alone']:.0f} | {m['beside'] / m['alone']:.3f} | | |")
            print(f"| {name}: largest gap ms; TTFT of the long prompt ms | {m['largest']:.0f} | {m['long']:.0f} | | | |", flush=True)
        data.append(results)
    finally:
        daemon.close()
        server.close()


def bench_plot(args, data):
    print("| sessions | Rumbo tokens/s | llama-server tokens/s | Rumbo TTFT ms | llama-server TTFT ms |\n|---|---|---|---|---|")
    for n in (1, 2, 4, 8, 16, 32):
        if args.scene and str(n) not in args.scene.split(","):
            continue
        a, b = compare(args, args.weights[0], n, 100, 0, 1024 * n, data)
        print(f"| {n} | {a['agg']:.0f} | {b['agg']:.0f} | {a['ttft_p50']:.0f} | {b['ttft_p50']:.0f} |", flush=True)


def bench_overhead(args, data):
    print(TABLE)
    daemon = Daemon(args.bin)
    try:
        daemon.cli("load", "fake", "--engine", "fake", "--sessions", 32)
        pid = daemon.process.pid

        def cost(sessions, tokens, rounds):
            asyncio.run(round_of(daemon.port, "fake", ["hello"] * sessions, tokens))
            before = cpu_seconds(pid)
            for _ in range(rounds):
                asyncio.run(round_of(daemon.port, "fake", ["hello"] * sessions, tokens))
            return cpu_seconds(pid) - before

        rounds = max(args.rounds, 5)
        long = cost(16, 2000, rounds) / (16 * 2000 * rounds) * 1e6
        row("HTTP: daemon CPU per streamed token, 16 streams, us", f"{long:.1f}", "limit", long, 15, "<=")
        short = cost(16, 1, rounds * 20) / (16 * rounds * 20) * 1e6
        row("HTTP: daemon CPU per request, us", f"{short:.0f}", "limit", short, 250, "<=")
        result = subprocess.run([args.bin / "rumbo-rpc-bench", daemon.env["RUMBO_SOCKET"], str(pid)], capture_output=True, text=True)
        if result.returncode == 0:
            for line in result.stdout.splitlines():
                name, value, limit = line.rsplit("\t", 2)
                row(name, value, "limit", float(value), float(limit), "<=")
        else:
            print("rumbo-rpc-bench: " + result.stderr[-300:])
        data.append({"us_per_token": long, "us_per_request": short})
    finally:
        daemon.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--packs", type=pathlib.Path, required=True)
    parser.add_argument("--weights", nargs="+", default=["gemma"], help="names in --models, or paths")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--predict", type=int, default=64)
    parser.add_argument("--peer", help="llama-server's flags; without this the best of some are taken")
    parser.add_argument("--scene", help="only scenes whose title has this; for sessions-plot numbers, as 1,2,4")
    parser.add_argument("--long-words", type=int, default=6000, help="of the long prompt; each is about one token")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    header(args)
    data = []
    if args.name == "single":
        bench_single(args, data)
    elif args.name == "sessions-plot":
        bench_plot(args, data)
    elif args.name == "sessions-chat":
        bench_chat(args, data)
    elif args.name == "long-and-short":
        bench_long(args, data)
    elif args.name == "overhead":
        bench_overhead(args, data)
    else:
        bench_sessions(args, data, args.name == "sessions-shared")
    if args.json:
        args.json.write_text(json.dumps(data, indent=1))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
