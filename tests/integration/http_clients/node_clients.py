"""The npm clients of OpenAI, Anthropic and Ollama against a real daemon with a real model: clients.mjs."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from harness import BIN, MODELS, SKIP, Daemon  # noqa: E402
from node import modules, run_node  # noqa: E402


def main():
    model = MODELS / "smollm2.gguf"
    if not model.exists() or not (BIN / "rumbod").exists():
        print("no model or no daemon: ./dev setup, ./dev build")
        return SKIP
    modules()
    with Daemon() as daemon:
        daemon.cli("import", model, "--name", "smollm2")
        return run_node(pathlib.Path(__file__).with_name("clients.mjs"), {"RUMBO_ADDRESS": f"127.0.0.1:{daemon.port}"})


if __name__ == "__main__":
    sys.exit(main())
