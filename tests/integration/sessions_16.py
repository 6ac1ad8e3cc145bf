#!/usr/bin/env python3
"""Sixteen sessions at once on the real model, through HTTP: all answer in full, and the same prompt gets the same answer."""
import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import MODELS, SKIP, Daemon, complete  # noqa: E402


def main():
    model = MODELS / "smollm2.gguf"
    if not model.exists():
        print("no demo model: set RUMBO_TEST_MODELS")
        return SKIP
    with Daemon() as d:
        d.cli("import", model, "--name", "m")
        d.cli("load", "m", "--context", 4096, "--sessions", 8)

        async def all_at_once():
            return await asyncio.gather(*[
                complete(d.port, {"model": "m", "prompt": f"Story {i // 2}: the old lighthouse", "max_tokens": 32, "temperature": 0,
                                  "ignore_eos": True}) for i in range(16)])

        answers = asyncio.run(all_at_once())
        for text, finish, error in answers:
            assert finish == "length" and not error and text, (finish, error)
        assert len({a[0] for a in answers}) >= 4, "different prompts got the same answer"
        assert d.instances()[0]["requests"] == 16
    print("16 sessions answered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
