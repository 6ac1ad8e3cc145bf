"""The real client libraries against a real daemon with SmolLM2. Each answer changes with its input."""
import argparse
import concurrent.futures
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import anthropic
import ollama
import openai

ARGS = None
ADDRESS = None
DAEMON = None
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
          "required": ["city", "people"], "additionalProperties": False}


class Daemon:
    """rumbod in folders of its own, with the demo model imported as "smollm2"."""

    def __init__(self, bin_dir, model):
        self.dir = tempfile.TemporaryDirectory(prefix="rumbo-http-")
        d = self.dir.name
        self.env = dict(os.environ, RUMBO_SOCKET=f"{d}/rumbo.sock")
        self.log = open(f"{d}/log", "w+")
        self.process = subprocess.Popen(
            [f"{bin_dir}/rumbod", "--socket", f"{d}/rumbo.sock", "--http", "127.0.0.1:0", "--state-dir", f"{d}/state",
             "--cache-dir", f"{d}/cache", "--config", self._config(d)], stderr=self.log, env=self.env)
        self.address = self._await_address()
        subprocess.run([f"{bin_dir}/rumbo", "import", model, "--name", "smollm2"], env=self.env, check=True,
                       stdout=subprocess.DEVNULL)

    def _config(self, d):
        path = f"{d}/config.yaml"
        open(path, "w").close()
        return path

    def _await_address(self):
        for _ in range(600):
            match = re.search(r"http://(127\.0\.0\.1:\d+)", self.read_log())
            if match:
                return match.group(1)
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError("rumbod did not start:\n" + self.read_log())

    def read_log(self):
        with open(self.log.name) as f:
            return f.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.dir.cleanup()


def running():
    """Requests that the daemon is answering now, from its metrics."""
    connection = http.client.HTTPConnection(ADDRESS, timeout=10)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    return int(float(re.search(r"^rumbo_requests_running (\S+)$", page, re.M).group(1)))


def await_idle():
    for _ in range(200):
        if running() == 0:
            return True
        time.sleep(0.01)
    return False


def or_skip(ask):
    """What the engine cannot do yet must say 501, nothing else."""
    try:
        return ask()
    except (openai.APIStatusError, anthropic.APIStatusError, ollama.ResponseError) as error:
        if error.status_code == 501:
            raise unittest.SkipTest(str(error)) from error
        raise


class OpenAiClient(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="none", max_retries=0)

    def ask(self, text, **more):
        args = dict(model="smollm2", messages=[{"role": "user", "content": text}], max_completion_tokens=24, temperature=0)
        return self.client.chat.completions.create(**{**args, **more})

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["smollm2"])
        self.assertEqual(self.client.models.retrieve("smollm2").id, "smollm2")

    def test_chat_answers_differ_and_repeat(self):
        first = self.ask("What is gravity?")
        again = self.ask("What is gravity?")
        other = self.ask("Say hello to my cat.")
        self.assertTrue(first.choices[0].message.content)
        self.assertEqual(first.choices[0].message.content, again.choices[0].message.content)
        self.assertNotEqual(first.choices[0].message.content, other.choices[0].message.content)
        self.assertGreater(first.usage.prompt_tokens, 5)
        self.assertGreater(first.usage.completion_tokens, 1)

    def test_stream_is_the_whole_answer(self):
        whole = self.ask("Name three colours.")
        text, usage, finish = "", None, None
        for chunk in self.ask("Name three colours.", stream=True, stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
                finish = chunk.choices[0].finish_reason or finish
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(finish, whole.choices[0].finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_completion_with_stop_and_logprobs(self):
        answer = self.client.completions.create(model="smollm2", prompt="one two three four", max_tokens=12, temperature=0,
                                                logprobs=2, stop=[" seven"])
        self.assertNotIn("seven", answer.choices[0].text)
        self.assertEqual(len(answer.choices[0].logprobs.tokens), len(answer.choices[0].logprobs.token_logprobs))

    def test_structured_output(self):
        answer = or_skip(lambda: self.ask("Describe Berlin as JSON.", max_completion_tokens=60, response_format={
            "type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}))
        data = json.loads(answer.choices[0].message.content)
        self.assertEqual(sorted(data), ["city", "people"])
        self.assertIsInstance(data["people"], int)

    def test_responses(self):
        args = dict(model="smollm2", input="What is gravity?", max_output_tokens=24, temperature=0)
        answer = self.client.responses.create(**args)
        self.assertEqual(answer.output_text, self.ask("What is gravity?").choices[0].message.content)
        text = ""
        with self.client.responses.stream(**args) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
        self.assertEqual(text, answer.output_text)

    def test_tools_or_a_clear_refusal(self):
        tool = {"type": "function", "function": {"name": "add", "description": "adds two numbers", "parameters": {
            "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}
        try:
            answer = self.ask("Add 1 and 2.", tools=[tool], tool_choice="required", max_completion_tokens=60)
        except openai.APIStatusError as error:
            self.assertIn(error.status_code, (400, 501))
            return
        call = answer.choices[0].message.tool_calls[0]
        self.assertEqual(call.function.name, "add")
        self.assertEqual(sorted(json.loads(call.function.arguments)), ["a", "b"])

    def test_errors_have_their_types(self):
        with self.assertRaises(openai.NotFoundError) as missing:
            self.ask("x", model="nothing")
        self.assertEqual(missing.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as bad:
            self.ask("x", temperature=-1)
        self.assertEqual(bad.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError):
            self.ask("x", n=2)

    def test_closed_stream_frees_the_slot(self):
        stream = self.ask("Write a long story.", stream=True, max_completion_tokens=1500, extra_body={"ignore_eos": True})
        next(iter(stream))
        self.assertGreaterEqual(running(), 1)
        stream.close()
        self.assertTrue(await_idle())

    def test_sixteen_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda i: self.ask(f"Count to {i}.", max_completion_tokens=12), range(16)))
        self.assertEqual(len(answers), 16)
        self.assertGreater(len({a.choices[0].message.content for a in answers}), 3)


class AnthropicClient(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=f"http://{ADDRESS}", api_key="none", max_retries=0)

    def ask(self, text, **more):
        # Sampling parameters are no longer arguments of this client, but still part of the protocol.
        body = {"temperature": 0, **more.pop("extra_body", {})}
        args = dict(model="smollm2", max_tokens=24, messages=[{"role": "user", "content": text}])
        return self.client.messages.create(**{**args, **more}, extra_body=body)

    def test_message(self):
        answer = self.ask("What is gravity?", system="You are a pirate.")
        self.assertNotEqual(answer.content[0].text, self.ask("What is gravity?").content[0].text)
        self.assertIn(answer.stop_reason, ("end_turn", "max_tokens"))

    def test_bearer_token_is_accepted_too(self):
        client = anthropic.Anthropic(base_url=f"http://{ADDRESS}", auth_token="none", max_retries=0)
        self.assertTrue(client.messages.create(model="smollm2", max_tokens=4,
                                               messages=[{"role": "user", "content": "hi"}]).content)

    def test_count_equals_usage(self):
        messages = [{"role": "user", "content": "What is gravity?"}]
        count = self.client.messages.count_tokens(model="smollm2", messages=messages)
        answer = self.client.messages.create(model="smollm2", max_tokens=4, messages=messages)
        self.assertGreater(count.input_tokens, 5)
        self.assertEqual(count.input_tokens, answer.usage.input_tokens)

    def test_stream_is_the_whole_answer(self):
        whole = self.ask("Name three colours.")
        with self.client.messages.stream(model="smollm2", max_tokens=24, extra_body={"temperature": 0},
                                         messages=[{"role": "user", "content": "Name three colours."}]) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        self.assertEqual(final.usage.input_tokens, whole.usage.input_tokens)

    def test_structured_output(self):
        answer = or_skip(lambda: self.ask(
            "Describe Berlin as JSON.", max_tokens=60,
            extra_body={"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}))
        self.assertEqual(sorted(json.loads(answer.content[0].text)), ["city", "people"])

    def test_errors_have_their_types(self):
        with self.assertRaises(anthropic.NotFoundError):
            self.ask("x", model="nothing")
        with self.assertRaises(anthropic.BadRequestError):
            self.ask("x", extra_body={"top_p": 7})

    def test_closed_stream_frees_the_slot(self):
        with self.client.messages.stream(model="smollm2", max_tokens=1500, extra_body={"ignore_eos": True},
                                         messages=[{"role": "user", "content": "Write a long story."}]) as stream:
            next(iter(stream.text_stream))
        self.assertTrue(await_idle())


class OllamaClient(unittest.TestCase):
    def setUp(self):
        self.client = ollama.Client(host=f"http://{ADDRESS}")

    def test_list_show_ps(self):
        self.client.generate(model="smollm2")  # loads
        self.assertEqual([m.model for m in self.client.list().models], ["smollm2:latest"])
        self.assertIn("completion", self.client.show("smollm2").capabilities)
        self.assertEqual([m.model for m in self.client.ps().models], ["smollm2:latest"])

    def test_chat_and_stream(self):
        args = dict(model="smollm2", messages=[{"role": "user", "content": "What is gravity?"}],
                    options={"temperature": 0, "num_predict": 24})
        whole = self.client.chat(**args)
        self.assertTrue(whole.message.content)
        self.assertEqual("".join(p.message.content or "" for p in self.client.chat(**args, stream=True)), whole.message.content)
        self.assertGreater(whole.eval_count, 1)

    def test_generate_raw_and_templated(self):
        options = {"temperature": 0, "num_predict": 12}
        raw = self.client.generate(model="smollm2", prompt="one two three four", raw=True, options=options)
        templated = self.client.generate(model="smollm2", prompt="one two three four", options=options)
        self.assertNotEqual(raw.response, templated.response)

    def test_format(self):
        answer = or_skip(lambda: self.client.chat(
            model="smollm2", messages=[{"role": "user", "content": "Describe Berlin as JSON."}], format=SCHEMA,
            options={"temperature": 0, "num_predict": 60}))
        self.assertEqual(sorted(json.loads(answer.message.content)), ["city", "people"])

    def test_errors(self):
        with self.assertRaises(ollama.ResponseError) as missing:
            self.client.chat(model="nothing", messages=[{"role": "user", "content": "x"}])
        self.assertEqual(missing.exception.status_code, 404)


class Vectors(unittest.TestCase):
    """A model made to answer makes vectors in an instance of its own, loaded with a pooling."""

    @classmethod
    def setUpClass(cls):
        loaded = subprocess.run([f"{ARGS.bin}/rumbo", "load", "smollm2", "--pooling", "mean", "--json"], env=DAEMON.env,
                                check=True, stdout=subprocess.PIPE)
        cls.instance = json.loads(loaded.stdout)["instance_id"]

    @classmethod
    def tearDownClass(cls):
        subprocess.run([f"{ARGS.bin}/rumbo", "unload", cls.instance], env=DAEMON.env, check=True, stdout=subprocess.DEVNULL)

    def setUp(self):
        self.openai = openai.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="none", max_retries=0)
        self.ollama = ollama.Client(host=f"http://{ADDRESS}")

    def test_openai_as_base64_and_as_numbers(self):
        texts = ["a cat", "a dog", "quantum field theory"]
        # Without a wish this client asks for base64 and unpacks it.
        packed = self.openai.embeddings.create(model="smollm2", input=texts)
        plain = self.openai.embeddings.create(model="smollm2", input=texts, encoding_format="float")
        self.assertEqual([d.index for d in packed.data], [0, 1, 2])
        for one, other in zip(packed.data, plain.data):
            self.assertEqual(len(one.embedding), len(other.embedding))
            self.assertLess(max(abs(a - b) for a, b in zip(one.embedding, other.embedding)), 1e-5)
        self.assertNotEqual(packed.data[0].embedding, packed.data[2].embedding)
        self.assertGreater(packed.usage.prompt_tokens, 3)
        single = self.openai.embeddings.create(model="smollm2", input="a cat")
        self.assertGreater(sum(a * b for a, b in zip(single.data[0].embedding, packed.data[0].embedding)), 0.99)
        with self.assertRaises(openai.NotFoundError):
            self.openai.embeddings.create(model="nothing", input="x")

    def test_ollama(self):
        answer = self.ollama.embed(model="smollm2", input=["a cat", "quantum field theory"])
        self.assertEqual(len(answer.embeddings), 2)
        self.assertNotEqual(answer.embeddings[0], answer.embeddings[1])
        self.assertAlmostEqual(sum(x * x for x in answer.embeddings[0]), 1, places=3)
        self.assertGreater(answer.prompt_eval_count, 3)
        older = self.ollama.embeddings(model="smollm2", prompt="a cat").embedding
        self.assertEqual(len(older), len(answer.embeddings[0]))


class OneSchedulerBehindAll(unittest.TestCase):
    def test_the_same_question_gets_the_same_answer(self):
        question = [{"role": "user", "content": "Why is the sky blue?"}]
        by_openai = openai.OpenAI(base_url=f"http://{ADDRESS}/v1", api_key="none").chat.completions.create(
            model="smollm2", messages=question, max_tokens=24, temperature=0).choices[0].message.content
        by_anthropic = anthropic.Anthropic(base_url=f"http://{ADDRESS}", api_key="none").messages.create(
            model="smollm2", messages=question, max_tokens=24, extra_body={"temperature": 0}).content[0].text
        by_ollama = ollama.Client(host=f"http://{ADDRESS}").chat(
            model="smollm2", messages=question, options={"num_predict": 24, "temperature": 0}).message.content
        self.assertEqual(by_openai, by_anthropic)
        self.assertEqual(by_openai, by_ollama)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", required=True)
    ARGS, rest = parser.parse_known_args()
    daemon = DAEMON = Daemon(ARGS.bin, ARGS.model)
    ADDRESS = daemon.address
    try:
        result = unittest.main(argv=[sys.argv[0]] + rest, exit=False, verbosity=2).result
        if not result.wasSuccessful():
            print(daemon.read_log()[-3000:], file=sys.stderr)
    finally:
        daemon.stop()
    sys.exit(not result.wasSuccessful())
