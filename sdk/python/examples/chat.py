"""Streams one answer: chat.py MODEL PROMPT"""
import sys

import rumbo

with rumbo.Client.connect(start_daemon=True) as client:
    stream = client.chat(sys.argv[1], sys.argv[2])
    for chunk in stream:
        print(chunk.text, end="", flush=True)
    print(f"\n{stream.finished.timings.decode_tok_s:.1f} tokens/s")
