#!/usr/bin/env python3
"""The fake hub against the real huggingface_hub client: what that downloads, finds and caches there, Rumbo finds too.

Skipped (77) where the client is not installed for this Python.
"""
import hashlib
import os
import pathlib
import random
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from fake_hub import Hub  # noqa: E402

hub = Hub()
os.environ |= {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}
cache = tempfile.mkdtemp(prefix="rumbo-hf-")
os.environ["HF_HOME"] = cache
try:
    import huggingface_hub
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError
except ImportError:
    print("huggingface_hub is not installed")
    sys.exit(77)

data = random.Random(1).randbytes(3 << 20)
sha = hub.add_repo("org/Tiny-GGUF", {"Tiny-Q4_K_M.gguf": data, "config.json": b'{"a": 1}'})
path = hf_hub_download("org/Tiny-GGUF", "Tiny-Q4_K_M.gguf")
assert pathlib.Path(path).read_bytes() == data
real = pathlib.Path(path).resolve()
assert real.name == hashlib.sha256(data).hexdigest(), real
assert pathlib.Path(path).parent.name == sha, path
folder = pathlib.Path(snapshot_download("org/Tiny-GGUF"))
assert {p.name for p in folder.iterdir()} == {"Tiny-Q4_K_M.gguf", "config.json"}
assert (pathlib.Path(cache) / "hub/models--org--Tiny-GGUF/refs/main").read_text() == sha
info = HfApi().model_info("org/Tiny-GGUF", files_metadata=True)
lfs = {s.rfilename: s for s in info.siblings}["Tiny-Q4_K_M.gguf"]
assert lfs.size == len(data) and lfs.lfs.sha256 == hashlib.sha256(data).hexdigest(), lfs
assert info.card_data.license == "apache-2.0", info.card_data
for wrong, error in (("none.gguf", EntryNotFoundError),):
    try:
        hf_hub_download("org/Tiny-GGUF", wrong)
        raise SystemExit("a file that is not there was downloaded")
    except error:
        pass
try:
    HfApi().model_info("org/none")
    raise SystemExit("a repository that is not there was found")
except RepositoryNotFoundError:
    pass
assert [m.id for m in HfApi().list_models(search="tiny", limit=5)] == ["org/Tiny-GGUF"]
# A changed commit is a new snapshot of the same repository.
sha2 = hub.add_repo("org/Tiny-GGUF", {"Tiny-Q4_K_M.gguf": data[::-1], "config.json": b'{"a": 2}'})
assert sha2 != sha and pathlib.Path(hf_hub_download("org/Tiny-GGUF", "Tiny-Q4_K_M.gguf")).read_bytes() == data[::-1]
print(f"huggingface_hub {huggingface_hub.__version__} takes the fake for a hub ({len(hub.requests)} requests)")
hub.close()
