#!/usr/bin/env python3
"""docs/reference.md: every call and message of rumbo.v1 with the comments of the protos. Without arguments compares, --fix writes."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reference.md"
ORDER = ["inference", "model", "plan", "device", "instance", "admin", "errors"]
HEAD = """# Reference of the wire

Made from `proto/rumbo/v1` by `./dev check --fix`; `./dev check` compares. Fields marked *optional* know the difference between absent and 0.
SDKs use the same names in their language's spelling.
"""


def blocks(text):
    """Top-level (comment, keyword, name, body) of a proto file."""
    for match in re.finditer(r"^((?://[^\n]*\n)*)(service|message|enum) (\w+) \{", text, re.M):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield comment(match[1]), match[2], match[3], text[match.end():end - 1]


def comment(text):
    return " ".join(line.strip().lstrip("/").strip() for line in text.strip().splitlines())


def cell(text):
    return text.replace("|", "\\|")


def members(body):
    """(comment, oneof, statement) of each field, value or call."""
    notes, oneof = [], ""
    for line in body.splitlines():
        line = line.strip()
        if line.startswith("//"):
            notes.append(line[2:].strip())
        elif line.startswith("oneof "):
            oneof, notes = line.split()[1], []
        elif line == "}":
            oneof, notes = "", []
        elif line:
            yield " ".join(notes), oneof, line.rstrip(";{} ")
            notes = []
        else:
            notes = []


def page():
    out = [HEAD]
    for name in ORDER:
        text = (ROOT / f"proto/rumbo/v1/{name}.proto").read_text()
        out.append(f"\n## {name}.proto\n")
        for note, keyword, title, body in blocks(text):
            rows = list(members(body))
            if not rows and keyword == "message":
                continue
            out.append(f"\n### {title}\n")
            if note:
                out.append(note + "\n")
            if keyword == "service":
                out.append("| call | request | response | |\n|---|---|---|---|")
                for text_, _, statement in rows:
                    call = re.match(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)", statement)
                    if call:
                        out.append(f"| `{call[1]}` | {call[2] or ''}{call[3]} | {call[4] or ''}{call[5]} | {cell(text_)} |")
            elif keyword == "enum":
                out.append("| value | |\n|---|---|")
                out += [f"| `{statement.split()[0]}` | {cell(text_)} |" for text_, _, statement in rows]
            else:
                out.append("| field | type | |\n|---|---|---|")
                for text_, oneof, statement in rows:
                    field = re.match(r"(optional |repeated )?([\w.]+|map<[^>]*>) (\w+) = \d+", statement)
                    if field:
                        kind = (f"{(field[1] or '').strip()} " if field[1] else "") + field[2]
                        kind = kind + (f", one of `{oneof}`" if oneof else "")
                        out.append(f"| `{field[3]}` | {cell(kind)} | {cell(text_)} |")
            out.append("")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).rstrip() + "\n"


made = page()
if "--fix" in sys.argv:
    PAGE.write_text(made)
elif not PAGE.exists() or PAGE.read_text() != made:
    sys.exit("docs/reference.md is not what the protos say: ./dev check --fix")
