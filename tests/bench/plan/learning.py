#!/usr/bin/env python3
"""What the planner learns on this machine.

regret  {model} x {Q4, Q8_0, BF16} x {each build of the worker, llama-server} x {1, 4, 16 sessions}, all measured; beside them what
        the planner chose before it had measured anything and after `rumbo tune`; regret is best / chosen. Variants are made from
        the test models with libllama's own quantiser. `--phase tune` and `--phase measure` run half of it each and meet in --data.
learn   ten runs, then the next prediction beside what is measured next.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import Daemon, LlamaServer, round_of, words  # noqa: E402

SESSIONS = (1, 4, 16)
PROMPT, ANSWER = 96, 48
FILES = {"smollm2": ("smollm2.gguf", "q4_1"), "gemma": ("gemma.gguf", "q4_k_m")}


def variants(args, model):
    """Paths by variant; the two that are not shipped are made once."""
    name, shipped = FILES[model]
    out = {shipped: args.models / name}
    made = args.models / "variants"
    made.mkdir(exist_ok=True)
    for kind in ("Q8_0", "BF16"):
        path = made / f"{model}-{kind.lower()}.gguf"
        if not path.exists():
            temporary = path.with_suffix(".tmp")
            subprocess.run([args.packs / "native/bin/llama-quantize", "--allow-requantize", args.models / name, temporary, kind],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            temporary.rename(path)
        out[kind.lower()] = path
    return out


def prompts(count, seed):
    rng = random.Random(seed)
    return [words(rng, PROMPT) for _ in range(count)]


def start(args, model):
    daemon = Daemon(args.bin)
    for variant, path in variants(args, model).items():
        daemon.cli("import", path, "--name", model, "--variant", variant)
    return daemon


def plan(daemon, model, sessions, metric):
    # The choice for the first token alone is that of the shortest answer.
    answer = ANSWER if metric == "tokens/s" else 1
    objective = "throughput" if metric == "tokens/s" else "latency"
    chosen = json.loads(daemon.cli("plan", model, "--sessions", sessions, "--objective", objective, "--prompt", PROMPT, "--answer",
                                   answer, "--json"))["chosen"]
    return f"{chosen['variant']} {chosen['engine_build']}", chosen["predicted"]["source"]


def choices(daemon, model):
    return {f"{metric} {n}": plan(daemon, model, n, metric) for n in SESSIONS for metric in ("tokens/s", "TTFT")}


def measure_round(port, model, sessions, rounds):
    asyncio.run(round_of(port, model, prompts(1, 7), 16))
    results = [asyncio.run(round_of(port, model, prompts(sessions, 100 * r + sessions), ANSWER)) for r in range(rounds if sessions > 1 else rounds + 5)]
    return {"tokens/s": statistics.median(r["agg"] for r in results), "TTFT": statistics.median(r["ttft_p50"] for r in results)}


def tune_phase(args, data):
    for model in args.only:
        daemon = start(args, model)
        data[model] = data.get(model, {})
        data[model]["before"] = choices(daemon, model)
        result = json.loads(daemon.cli("tune", model, "--limit", args.limit, "--json"))
        data[model]["trials"] = result["trials"]
        data[model]["tune"] = {"trials": result["result"]["trials"], "seconds": result["result"]["elapsed_s"],
                               "cut_short": result["result"]["cut_short"]}
        data[model]["after"] = choices(daemon, model)
        daemon.close()


def measure_phase(args, data):
    for model in args.only:
        rows = data.setdefault(model, {}).setdefault("measured", {})
        daemon = start(args, model)
        builds = [b for b in ("native", "prebuilt") if (args.bin / f"engines/llamacpp-{b}").exists()]
        for n in SESSIONS:
            for variant, path in variants(args, model).items():
                for build in builds:
                    daemon.cli("load", model, "--variant", variant, "--engine", "llamacpp", "--build", build, "--sessions", n)
                    rows[f"{n} {variant} {build}"] = measure_round(daemon.port, model, n, args.rounds)
                    daemon.cli("unload", model)
                if (args.packs / "native/bin/llama-server").exists():
                    server = LlamaServer(args.packs / "native", path, n, n * 512, os.cpu_count())
                    rows[f"{n} {variant} llama-server"] = measure_round(server.port, model, n, args.rounds)
                    server.close()
        daemon.close()


def report(data):
    worst = 0.0
    for model, d in data.items():
        tune = d["tune"]
        print(f"\n{model}: `rumbo tune` made {tune['trials']} trials in {tune['seconds']:.0f} s{', cut short' if tune['cut_short'] else ''}\n")
        print("| sessions | variant, engine | tokens/s | TTFT ms |\n|---|---|---|---|")
        for key, figures in sorted(d["measured"].items(), key=lambda kv: (int(kv[0].split()[0]), -kv[1]["tokens/s"])):
            n, rest = key.split(" ", 1)
            print(f"| {n} | {rest} | {figures['tokens/s']:.1f} | {figures['TTFT']:.0f} |")
        print("\n| sessions | metric | chosen before | regret | chosen after tune | regret | best (all engines) | regret against it |\n|---|---|---|---|---|---|---|---|")
        for n in SESSIONS:
            for metric in ("tokens/s", "TTFT"):
                rows = {k.split(" ", 1)[1]: v[metric] for k, v in d["measured"].items() if int(k.split()[0]) == n}
                cost = (lambda v: 1 / v) if metric == "tokens/s" else (lambda v: v)
                own = {k: v for k, v in rows.items() if "llama-server" not in k}
                best_own, best_all = min(own, key=lambda k: cost(own[k])), min(rows, key=lambda k: cost(rows[k]))
                before, after = d["before"][f"{metric} {n}"][0], d["after"][f"{metric} {n}"][0]
                r_before, r_after = (cost(rows[c]) / cost(rows[best_own]) for c in (before, after))
                r_all = cost(rows[after]) / cost(rows[best_all])
                worst = max(worst, r_after)
                print(f"| {n} | {metric} | {before} | {r_before:.2f} | {after} | {r_after:.2f} | {best_all} | {r_all:.2f} |")
    print(f"\nworst regret after tuning, over what the daemon can run: {worst:.3f} (must <= 1.1, aim 1.02)")
    return worst <= 1.1


def regret(args):
    path = args.data or pathlib.Path(tempfile.gettempdir()) / f"rumbo-regret-{os.getuid()}.json"
    data = json.loads(path.read_text()) if args.phase != "all" and path.exists() else {}
    if args.phase in ("all", "tune"):
        tune_phase(args, data)
    if args.phase in ("all", "measure"):
        measure_phase(args, data)
    path.write_text(json.dumps(data, indent=1))
    complete = {m: d for m, d in data.items() if "tune" in d and "measured" in d}
    if args.phase == "report" or complete:
        return report(complete)
    return True


def learn(args):
    ok = True
    print("| model | sessions | figure | predicted at first | predicted after ten runs | measured next | off by | within 10 % |\n|---|---|---|---|---|---|---|---|")
    for model in args.only:
        daemon = Daemon(args.bin)
        daemon.cli("import", args.models / FILES[model][0], "--name", model)
        for n in (1, 4):
            def predicted():
                p = json.loads(daemon.cli("plan", model, "--sessions", n, "--prompt", PROMPT, "--answer", ANSWER, "--json"))
                return p["chosen"]["predicted"]
            first = predicted()
            daemon.cli("load", model, "--sessions", n)
            asyncio.run(round_of(daemon.port, model, prompts(1, 3), 16))
            for r in range(10):
                asyncio.run(round_of(daemon.port, model, prompts(n, 1000 * n + r), ANSWER))
            then = predicted()
            nexts = [asyncio.run(round_of(daemon.port, model, prompts(n, 5000 * n + r), ANSWER)) for r in range(5)]
            figures = [("decode tokens/s", "decode_tok_s", statistics.median(r["decode"] for r in nexts))]
            if n == 1:
                figures.append(("TTFT ms", "ttft_ms", statistics.median(r["ttft_p50"] for r in nexts)))
            for label, key, measured in figures:
                off = then[key] / measured - 1
                ok = ok and abs(off) <= 0.1
                print(f"| {model} | {n} | {label} | {first[key]:.1f} | {then[key]:.1f} ({then['source']}) | {measured:.1f} | {off:+.1%} | "
                      f"{'yes' if abs(off) <= 0.1 else '**no**'} |", flush=True)
            daemon.cli("unload", model)
        daemon.close()
    return ok


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=("regret", "learn"))
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--packs", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(FILES), choices=list(FILES))
    parser.add_argument("--phase", default="all", choices=("all", "tune", "measure", "report"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=300, help="seconds for each `rumbo tune`")
    parser.add_argument("--data", type=pathlib.Path)
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    print(f"{args.name}: {cpu}, {os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}", flush=True)
    sys.exit(0 if (regret if args.name == "regret" else learn)(args) else 1)


if __name__ == "__main__":
    main()
