"""Sorts lines of standard input into classes: classify.py MODEL CLASS CLASS ..."""
import sys

import rumbo

model, *classes = sys.argv[1:]
schema = {"type": "object", "properties": {"label": {"enum": classes}}, "required": ["label"], "additionalProperties": False}
with rumbo.Client.connect(start_daemon=True) as client:
    for line in filter(None, map(str.strip, sys.stdin)):
        # The engine can answer nothing but one of the classes.
        answer = client.chat_as(model, f"Classify as one of {', '.join(classes)}: {line}", schema, temperature=0, max_tokens=32)
        print(f"{answer['label']}\t{line}", flush=True)
