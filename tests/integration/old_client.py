#!/usr/bin/env python3
"""The previous version's client against this daemon: the Python SDK with the wire descriptors of proto/compat."""
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import harness  # noqa: E402

VENV = pathlib.Path(os.environ.get("RUMBO_DEPS", pathlib.Path.home() / ".cache/rumbo-dev")) / "python-sdk/bin/python"


def drive(socket):
    import rumbo
    with rumbo.Client.connect(socket) as client:
        assert client.status().version, "no version"
        topology = client.devices()
        assert any(d.kind == "cpu" and d.usable for d in topology.devices) and topology.pools[0].total_bytes > 0
        plan = client.plan("m", overrides=rumbo.PlanOverrides(engine="fake"))
        assert plan.chosen is not None and plan.chosen.engine == "fake" and plan.chosen.reasons
        loaded = client.load("m", overrides=rumbo.PlanOverrides(engine="fake"))
        assert [i.id for i in client.instances()] == [loaded.instance_id]
        stream = client.generate("m", "Once", max_tokens=5)
        text = "".join(chunk.text for chunk in stream)
        assert text and stream.finished.usage.completion_tokens == 5 and stream.finished.reason == "length"
        assert client.explain(loaded.instance_id).plan.chosen.engine == "fake"
        try:
            client.model("nobody")
            raise AssertionError("no error")
        except rumbo.NotFound as error:
            assert error.reason == "MODEL_NOT_FOUND"
        assert client.unload("m") == [loaded.instance_id]


if os.environ.get("RUMBO_OLD_CLIENT"):
    drive(os.environ["RUMBO_OLD_CLIENT"])
    sys.exit(0)

built = harness.BIN.parent / "python/rumbo"
if not VENV.exists() or not built.exists():
    print("the Python SDK's environment is not there; its own test makes it")
    sys.exit(harness.SKIP)
for baseline in sorted((harness.ROOT / "proto/compat").glob("*.binpb")):
    with tempfile.TemporaryDirectory() as folder, harness.Daemon(http=False) as daemon:
        shutil.copytree(built, f"{folder}/rumbo")
        shutil.copyfile(baseline, f"{folder}/rumbo/wire.binpb")
        env = os.environ | {"PYTHONPATH": folder, "RUMBO_OLD_CLIENT": str(daemon.dir / "s")}
        code = harness.subprocess.run([VENV, __file__], env=env).returncode
        if code:
            sys.exit(f"FAIL  a client of {baseline.stem}")
        print(f"ok    a client of {baseline.stem}")
