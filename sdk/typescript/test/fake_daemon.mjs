// A daemon with canned answers (sdk/cpp/testing/fake_daemon.h says which), in a folder of its own.
import { spawn } from 'node:child_process';
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import { Client } from 'rumbo';

export const program = process.env.RUMBO_FAKE_RUMBOD;
if (!program) throw new Error('RUMBO_FAKE_RUMBOD names no program');

export async function withFolder(body) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rumbo-ts-'));
  const before = process.env.RUMBO_STATE_DIR;
  process.env.RUMBO_STATE_DIR = folder + '/state';
  try {
    return await body(folder);
  } finally {
    if (before === undefined) delete process.env.RUMBO_STATE_DIR;
    else process.env.RUMBO_STATE_DIR = before;
    const log = folder + '/state/rumbod.log';
    if (fs.existsSync(log)) {
      for (const [, pid] of fs.readFileSync(log, 'utf8').matchAll(/^pid (\d+)$/gm)) process.kill(Number(pid));
    }
    fs.rmSync(folder, { recursive: true });
  }
}

export async function withDaemon(body) {
  return withFolder(async (folder) => {
    const socket = folder + '/s.sock';
    const child = spawn(program, ['--socket', socket], { stdio: ['ignore', 'ignore', 'pipe'] });
    await new Promise((resolve, reject) => {
      child.stderr.once('data', resolve); // It says its pid once it listens or is about to.
      child.once('exit', () => reject(new Error('the fake daemon ended')));
    });
    let client;
    for (let tries = 0; !client; ++tries) {
      client = await Client.connect({ socket, app: 'tests' }).catch((error) => {
        if (tries > 2000) throw error;
        return new Promise((resolve) => setTimeout(resolve, 2));
      });
    }
    try {
      return await body(client, { socket, child });
    } finally {
      client.close();
      child.kill('SIGKILL');
    }
  });
}
