import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import {
  Cancelled, Client, DaemonUnreachable, InvalidArgument, NotFound, Refused, ResourceExhausted, RumboError,
  Unavailable, WrongShape, defaultSocket,
} from 'rumbo';
import { z } from 'zod';
import { program, withDaemon, withFolder } from './fake_daemon.mjs';

const bounded = { timeout: 30_000 };

test('an answer comes in pieces, and whole', bounded, () => withDaemon(async (client) => {
  const pieces = [];
  const stream = client.chat('hello', 'Hi');
  for await (const chunk of stream) pieces.push(chunk.text);
  assert.equal(pieces.length, 3);
  assert.equal(pieces.join(''), 'Hello, world');
  assert.equal(stream.started.engine.length > 0, true);
  assert.equal(typeof stream.finished.timings.decodeTokS, 'number');
  const answer = await client.generate('hello', 'Once').answer();
  assert.equal(answer.text, 'Hello, world');
  assert.equal(answer.finished.reason, 'stop');
}));

test('the prompt reaches the daemon byte for byte', bounded, () => withDaemon(async (client) => {
  const prompt = 'ñandú 𠮷 👩‍💻 \u0000 end';
  assert.equal((await client.chat('echo', [{ role: 'user', text: prompt }]).answer()).text, prompt);
}));

test('failures are typed and carry reason and next step', bounded, () => withDaemon(async (client) => {
  await assert.rejects(client.chat('nobody', 'x').answer(), (error) => {
    assert(error instanceof NotFound);
    assert.equal(error.reason, 'MODEL_NOT_FOUND');
    assert.notEqual(error.nextStep, '');
    return true;
  });
  await assert.rejects(client.chat('base', 'x').answer(), Refused);
  await assert.rejects(client.load('big'), ResourceExhausted);
  await assert.rejects(client.chat('crash', 'x').answer(), Unavailable);
  await assert.rejects(client.chat('cut', 'x').answer(), (error) => error instanceof RumboError && error.code === 'INTERNAL');
  assert.throws(() => client.chat('hello', 'x', { grammar: 'root ::= "a"', regex: 'a' }), InvalidArgument);
}));

test('a full queue is asked again after the time that the daemon names', bounded, () => withDaemon(async (client) => {
  assert.equal((await client.chat('busy', 'x').answer()).text, 'Hello, world');
}));

test('cancelling ends a silent stream: by method, by signal, by leaving the loop', bounded, () => withDaemon(async (client) => {
  const stream = client.chat('silent', 'x');
  setTimeout(() => stream.cancel(), 50);
  await assert.rejects(stream.answer(), Cancelled);

  const abort = new AbortController();
  setTimeout(() => abort.abort(), 50);
  await assert.rejects(client.chat('silent', 'x', { signal: abort.signal }).answer(), Cancelled);

  for await (const chunk of client.chat('hello', 'x')) {
    assert.equal(typeof chunk.text, 'string');
    break;
  }
  await assert.rejects(client.models({ signal: AbortSignal.abort() }), Cancelled);
}));

test('a deadline ends a silent stream', bounded, () => withDaemon(async (client) => {
  await assert.rejects(client.chat('silent', 'x', { timeoutMs: 100 }).answer(),
    (error) => error.code === 'DEADLINE_EXCEEDED');
}));

test('a daemon killed in the middle of a stream is an error, not a hang', bounded, () => withDaemon(async (client, { child }) => {
  const stream = client.chat('silent', 'x');
  setTimeout(() => child.kill('SIGKILL'), 50);
  await assert.rejects(stream.answer(), DaemonUnreachable);
  await assert.rejects(client.status({ timeoutMs: 2000 }), RumboError);
}));

test('a stream that nobody reads does no harm', bounded, () => withDaemon(async (client) => {
  client.chat('nobody', 'x');
  client.chat('crash', 'x');
  await delay(100);
  assert.equal((await client.chat('hello', 'x').answer()).text, 'Hello, world');
}));

test('models, plans, loads', bounded, () => withDaemon(async (client) => {
  const models = await client.models();
  assert(models.some((model) => model.name === 'hello'));
  assert.equal(typeof models[0].variants[0].sizeBytes, 'number');
  const refused = await client.plan('big', { workload: { sessions: 4 } });
  assert.equal(refused.chosen, undefined);
  assert.notEqual(refused.refusal.reason, '');
  const steps = [];
  const loaded = await client.load('hello', { overrides: { threads: 2 }, keepAliveS: -1, onProgress: (p) => steps.push(p.step) });
  assert.notEqual(loaded.instanceId, '');
  assert(steps.length > 0);
  const status = await client.status();
  assert.match(status.version, /\d/);
}));

test('structured answers: a schema or a zod type, and what does not fit', bounded, () => withDaemon(async (client) => {
  const Person = z.object({ name: z.string(), age: z.number().int() });
  const turn = JSON.stringify({ name: 'Ana', age: 3 });
  assert.deepEqual(await client.chatAs('echo', turn, Person), { name: 'Ana', age: 3 });
  assert.deepEqual(await client.chatAs('echo', '[1]', { type: 'array' }), [1]);
  await assert.rejects(client.chatAs('hello', 'x', Person), (error) => error instanceof WrongShape && error.text === 'Hello, world');
  await assert.rejects(client.chatAs('echo', '{"name": 1}', Person), WrongShape);
}));

test('nobody there: the reason, and what to do', bounded, () => withFolder(async (folder) => {
  await assert.rejects(Client.connect({ socket: folder + '/none.sock' }), (error) =>
    error instanceof DaemonUnreachable && error.nextStep.includes('rumbod'));
  fs.writeFileSync(folder + '/file', '');
  await assert.rejects(Client.connect({ socket: folder + '/file' }), /is not a socket/);
  await assert.rejects(Client.connect({ socket: folder + '/' + 'x'.repeat(200) }), InvalidArgument);
}));

test('a daemon is started where asked to; one that cannot start says why', bounded, () => withFolder(async (folder) => {
  const socket = folder + '/s.sock';
  const client = await Client.connect({ socket, startDaemon: true, daemonProgram: program });
  assert.equal((await client.chat('hello', 'x').answer()).text, 'Hello, world');
  client.close();
  process.env.FAKE_RUMBOD = 'fail';
  try {
    await assert.rejects(Client.connect({ socket: folder + '/t.sock', startDaemon: true, daemonProgram: program }),
      /the disk is full/);
  } finally {
    delete process.env.FAKE_RUMBOD;
  }
}));

test('the socket is looked for where the daemon puts it', () => {
  assert.equal(defaultSocket({ RUMBO_SOCKET: '/x/y.sock' }), '/x/y.sock');
  assert.match(defaultSocket({}), /^\/tmp\/rumbo-\d+\/rumbo\.sock$|^\/run\/rumbo\/rumbo\.sock$/);
});

test('streams leave nothing behind', { timeout: 60_000, skip: !globalThis.gc && 'needs --expose-gc' }, () => withDaemon(async (client) => {
  async function round() {
    for (let i = 0; i < 150; ++i) {
      await client.chat('hello', 'x').answer();
      for await (const _ of client.chat('hello', 'x')) break;
      await client.chat('nobody', 'x').answer().catch(() => {});
    }
    globalThis.gc();
    await delay(50);
    globalThis.gc();
    return process.memoryUsage().heapUsed;
  }
  await round();
  const before = await round();
  const grown = (await round()) - before;
  assert(grown < 600_000, `450 calls left ${grown} bytes`);
}));
