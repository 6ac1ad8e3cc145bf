"""An agent with two tools: agent.py MODEL QUESTION. The model decides; this program acts and tells it what came out."""
import datetime
import json
import sys

import rumbo

ACTIONS = {
    "add": lambda a, b: a + b,
    "weekday": lambda date: datetime.date.fromisoformat(date).strftime("%A"),
}
TOOLS = [
    rumbo.Tool("add", "Adds two numbers.", json.dumps({
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]})),
    rumbo.Tool("weekday", "Weekday of a date.", json.dumps({
        "type": "object", "properties": {"date": {"type": "string", "description": "YYYY-MM-DD"}}, "required": ["date"]})),
]

model, question = sys.argv[1:]
turns = [rumbo.Message("user", question)]
with rumbo.Client.connect(start_daemon=True) as client:
    for _ in range(4):
        answer = client.chat(model, turns, tools=TOOLS, temperature=0, max_tokens=128).answer()
        if not answer.tool_calls:
            print(answer.text.strip())
            break
        turns.append(rumbo.Message("assistant", answer.text, tool_calls=answer.tool_calls))
        for call in answer.tool_calls:
            try:
                result = str(ACTIONS[call.name](**json.loads(call.arguments_json)))
            except (KeyError, TypeError, ValueError) as error:
                result = f"error: {error}"
            print(f"{call.name}({call.arguments_json}) = {result}", file=sys.stderr)
            turns.append(rumbo.Message("tool", result, tool_call_id=call.id, name=call.name))
