#!/usr/bin/env python3
"""Which folder may include which: the arrows of docs/ARCHITECTURE.md, checked over every #include of ours.

Exit 0 where all hold; else 1 and a line for each include that points the wrong way.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Longest prefix decides. A folder may always include itself. Generated headers of proto/ are "rumbo/...".
ALLOWED = {
    "base": [],
    "devices/api": ["base"],
    "devices": ["base", "devices"],
    "engines/api": ["base", "devices/api"],
    "engines/worker_kit": ["base", "proto"],
    "engines/fake": ["base", "engines/api", "engines/worker_kit", "proto"],
    "engines/llamacpp": ["base", "engines/api", "engines/worker_kit", "proto"],
    "daemon/core": ["base", "devices/api", "engines/api"],
    "daemon/store": ["base", "devices/api", "engines/api", "daemon/core"],
    "daemon/wire": ["base", "devices/api", "engines/api", "daemon/core", "proto"],
    # engines/worker_kit is both ends of rumbo.engine.v1; devices/* below are readers of text, never of drivers.
    "daemon/supervisor": ["base", "devices", "engines/api", "engines/worker_kit", "daemon/core", "daemon/wire", "proto"],
    "daemon/rpc": ["base", "devices/api", "engines/api", "engines/worker_kit", "daemon/core", "daemon/store", "daemon/wire", "proto"],
    "daemon/http": ["base", "devices/api", "engines/api", "daemon/core"],
    "daemon/http/api": ["base", "engines/worker_kit", "daemon/core", "daemon/http", "proto"],
    "web": ["daemon/http"],
    "daemon": ["base", "devices", "engines", "daemon"],
    "sdk/cpp": ["base", "proto", "rumbo"],
    "sdk/cli": ["base", "sdk/cpp", "rumbo"],
    "sdk": ["base", "proto", "sdk", "rumbo"],
}
# Tests and benches may name anything; so may the daemon's composition root (daemon/main.cpp, above).
FREE = ("tests/", "build/")
# Third-party headers that only some folders may see.
FENCED = {
    "grpcpp/": ("daemon/rpc", "daemon/http/api", "daemon/supervisor", "engines/worker_kit", "engines/fake", "engines/llamacpp", "sdk", "tests"),
    "llama": ("engines/llamacpp",),
    "vulkan/": ("devices", "tests"),
    "hip/": ("devices",),
    "boost/beast": ("daemon/http", "daemon/asio_impl.cpp", "tests"),
    "CLI/": ("sdk/cli",),
}


def folder_of(path: str, table) -> str | None:
    best = None
    for folder in table:
        if (path == folder or path.startswith(folder + "/")) and (best is None or len(folder) > len(best)):
            best = folder
    return best


def main() -> int:
    wrong = []
    for path in sorted(ROOT.rglob("*")):
        if path.suffix not in (".h", ".cpp") or not path.is_file():
            continue
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(FREE):
            continue
        own = folder_of(name, ALLOWED)
        if own is None:
            wrong.append(f"{name}: its folder is in no table of tests/check/arrows.py")
            continue
        test = name.endswith("_test.cpp") or "/testing/" in name or "/fuzz/" in name
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
            if not m:
                continue
            target = m.group(2)
            for prefix, folders in FENCED.items():
                if target.startswith(prefix) and not any(name == f or name.startswith(f + "/") for f in folders):
                    wrong.append(f"{name}:{number}: {target} may only be seen in {', '.join(folders)}")
            if m.group(1) == "<" or test:
                continue
            if target.startswith(("rumbo/v1/", "rumbo/engine/v1/", "google/rpc/")):
                to = "proto"
            elif target.startswith("rumbo/"):
                to = "rumbo"
            elif (ROOT / target).exists():
                to = target
            else:
                continue  # beside the file, or not ours
            allowed = [own, *ALLOWED[own]]
            if not any(to == a or to.startswith(a + "/") for a in allowed):
                wrong.append(f"{name}:{number}: {own} may not include {target}")
    print("\n".join(wrong) if wrong else "include arrows hold")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
