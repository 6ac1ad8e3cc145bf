#!/usr/bin/env python3
"""Vectors, scores, and conversations that outlive the daemon, through every door of a real daemon: values equal libllama's own."""
import base64
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import BIN, MODELS, SKIP, Daemon, wait_until  # noqa: E402

TEXTS = ["the ship sails", "the sea is blue", "wind"]


def post(daemon, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{daemon.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def raw(pack, model, pooling, lines):
    out = subprocess.run([pack / "rumbo-llama-raw-embed", model, pooling], input="".join(line + "\n" for line in lines),
                         capture_output=True, text=True, check=True).stdout
    return [[float(v) for v in line.split()] for line in out.splitlines()]


def unit(vector):
    length = sum(v * v for v in vector) ** 0.5
    return [v / length for v in vector]


def near(got, want, most):
    assert len(got) == len(want), (len(got), len(want))
    worst = max(abs(a - b) for a, b in zip(got, want))
    assert worst <= most * max(map(abs, want)), worst


def embeddings(d, pack, tiny):
    d.cli("import", tiny / "bert-mean.gguf", "--name", "tiny")
    want = [unit(v) for v in raw(pack, tiny / "bert-mean.gguf", "mean", TEXTS)]
    plan = d.json("plan", "tiny")["chosen"]
    assert plan["settings"]["extra"]["pooling"] == "mean", plan["settings"]
    assert not any(m["what"] == "kv_cache" and int(m["bytes"]) for m in plan["memory"]), plan["memory"]

    got = d.json("embed", "tiny", *TEXTS)["embeddings"]
    for vector, expected in zip(got, want):
        near(vector["values"], expected, 2e-4)
    for spelling in ("float", "base64"):
        status, reply = post(d, "/v1/embeddings", {"model": "tiny", "input": TEXTS, "encoding_format": spelling})
        assert status == 200, reply
        assert [e["index"] for e in reply["data"]] == [0, 1, 2] and reply["usage"]["prompt_tokens"] > 8
        for entry, expected in zip(reply["data"], want):
            vector = entry["embedding"]
            if spelling == "base64":
                data = base64.b64decode(vector)
                vector = struct.unpack(f"<{len(data) // 4}f", data)
            near(vector, expected, 2e-4)
    status, reply = post(d, "/api/embed", {"model": "tiny", "input": TEXTS})
    assert status == 200 and reply["prompt_eval_count"] > 8, reply
    near(reply["embeddings"][1], want[1], 2e-4)
    status, reply = post(d, "/api/embeddings", {"model": "tiny", "prompt": TEXTS[0]})  # as the model makes it
    assert status == 200, reply
    near(reply["embedding"], raw(pack, tiny / "bert-mean.gguf", "mean", TEXTS[:1])[0], 2e-4)

    status, reply = post(d, "/v1/embeddings", {"model": "tiny", "input": "wind", "dimensions": 8})
    assert status == 200 and len(reply["data"][0]["embedding"]) == 8, reply
    near(reply["data"][0]["embedding"], unit(want[2][:8]), 2e-4)
    near(d.json("embed", "tiny", "wind", "--dimensions", 8)["embeddings"][0]["values"], unit(want[2][:8]), 2e-4)
    status, reply = post(d, "/v1/embeddings", {"model": "tiny", "input": "wind", "dimensions": 4096})
    assert status == 400 and "32 values" in reply["error"]["message"], reply
    status, reply = post(d, "/v1/embeddings", {"model": "tiny", "input": "the sea " * 400})
    assert status == 400 and "tokens" in reply["error"]["message"], reply
    status, reply = post(d, "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1})
    assert status >= 400, reply
    near(d.json("embed", "tiny", "wind", "--pooling", "cls")["embeddings"][0]["values"],
         unit(raw(pack, tiny / "bert-mean.gguf", "cls", ["wind"])[0]), 2e-4)


def scores(d, pack, tiny):
    d.cli("import", tiny / "bert-rank.gguf", "--name", "ranker")
    want = [v[0] for v in raw(pack, tiny / "bert-rank.gguf", "rank", ["the blue ship\t" + t for t in TEXTS])]
    for path in ("/v1/rerank", "/rerank"):
        status, reply = post(d, path, {"model": "ranker", "query": "the blue ship", "documents": TEXTS, "return_documents": True})
        assert status == 200, reply
        assert [r["index"] for r in reply["results"]] == sorted(range(3), key=lambda i: -want[i]), (reply, want)
        for r in reply["results"]:
            assert abs(r["relevance_score"] - want[r["index"]]) < 1e-3 and r["document"]["text"] == TEXTS[r["index"]]
    status, reply = post(d, "/v1/rerank", {"model": "ranker", "query": "x", "documents": TEXTS, "top_n": 1})
    assert status == 200 and len(reply["results"]) == 1
    status, reply = post(d, "/v1/embeddings", {"model": "ranker", "input": "x"})
    assert status == 400, reply


def decoder(d, pack, model):
    """A model made to answer, loaded for vectors because somebody asks for a pooling."""
    d.cli("import", model, "--name", "talker")
    got = d.json("embed", "talker", "The capital of France is Paris.", "--pooling", "last")["embeddings"][0]["values"]
    near(got, unit(raw(pack, model, "last", ["The capital of France is Paris."])[0]), 0.02)
    status, reply = post(d, "/v1/embeddings", {"model": "talker", "input": "x"})
    assert status == 200, reply  # the instance is there
    d.cli("unload", "talker")
    d.cli("load", "talker", "--sessions", 1, "--context", 512)
    status, reply = post(d, "/v1/embeddings", {"model": "talker", "input": "x"})
    assert status == 400 and "--pooling" in json.dumps(reply), reply
    d.cli("unload", "talker")


def conversation(d):
    """The second turn after a restart of the daemon computes its new words alone."""
    told = "Here is a list: " + ", ".join(f"item {i}" for i in range(120))
    body = {"model": "talker", "prompt": told, "max_tokens": 16, "temperature": 0}

    def ask():
        status, reply = post(d, "/v1/completions", body)
        assert status == 200, reply
        return reply

    d.cli("load", "talker", "--sessions", 2, "--context", 4096)
    assert ask()["usage"]["prompt_tokens"] > 400
    folder = d.dir / "cache/prompts"
    assert wait_until(lambda: any(folder.glob("*/*.kv")), 20), "nothing was written"
    for file in [folder, *folder.rglob("*")]:
        assert file.stat().st_mode & 0o077 == 0, (file, oct(file.stat().st_mode))
    d.close()
    d.start()
    d.cli("load", "talker", "--sessions", 2, "--context", 4096)
    body["prompt"] += " and so on"
    usage = ask()["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 0.95 * usage["prompt_tokens"], usage
    d.kill()  # without a word
    d.close()
    d.start()
    d.cli("load", "talker", "--sessions", 2, "--context", 4096)
    usage = ask()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0.9 * usage["prompt_tokens"], usage


def main():
    packs = sorted((BIN / "engines").glob("llamacpp-*/rumbo-tiny-models"))
    model = MODELS / "smollm2.gguf"
    if not packs or not model.exists():
        print("no llama.cpp worker or no demo model")
        return SKIP
    pack = packs[0].parent
    with tempfile.TemporaryDirectory() as tiny:
        tiny = pathlib.Path(tiny)
        subprocess.run([packs[0], tiny], check=True)
        with tempfile.TemporaryDirectory(prefix="rumbo-test-") as directory, Daemon(directory) as d:
            embeddings(d, pack, tiny)
            scores(d, pack, tiny)
            decoder(d, pack, model)
            conversation(d)
    print("embeddings, scores and a conversation across restarts, as they should be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
