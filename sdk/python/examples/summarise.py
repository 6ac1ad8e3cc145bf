"""Summarises a text file: summarise.py MODEL FILE"""
import pathlib
import sys

import rumbo

model, path = sys.argv[1:]
text = pathlib.Path(path).read_text(encoding="utf-8")
with rumbo.Client.connect(start_daemon=True) as client:
    # A long text is summarised piece by piece, and then the summaries: no piece may outgrow the context.
    pieces = [text[i:i + 4000] for i in range(0, len(text), 4000)]
    while True:
        summaries = [client.chat(model, f"Summarise in two sentences:\n\n{piece}", temperature=0, max_tokens=96).answer().text
                     for piece in pieces]
        if len(summaries) == 1:
            break
        pieces = ["\n".join(summaries[i:i + 8]) for i in range(0, len(summaries), 8)]
print(summaries[0].strip())
