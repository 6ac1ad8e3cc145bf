#!/usr/bin/env python3
"""Every relative link in a Markdown file of ours leads to a file that is there."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
bad = []
for name in files:
    text = (ROOT / name).read_text(errors="replace")
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        if not (ROOT / name).parent.joinpath(target).exists():
            bad.append(f"{name}: {target}")
print("\n".join(bad) or f"{len(files)} files")
sys.exit(bool(bad))
