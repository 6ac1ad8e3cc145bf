/** Finds the daemon's socket, says truthfully why nobody answers, and starts a daemon where asked to. */
import { spawn } from 'node:child_process';
import * as fs from 'node:fs';
import * as net from 'node:net';
import * as path from 'node:path';
import { DaemonUnreachable, InvalidArgument, PermissionDenied, type RumboError } from './errors.js';

const SYSTEM_SOCKET = '/run/rumbo/rumbo.sock';
const START = 'Start the daemon with `rumbod`, or connect with { startDaemon: true }.';

export interface ConnectOptions {
  /**
   * The daemon's socket. By default $RUMBO_SOCKET; else $XDG_RUNTIME_DIR/rumbo/rumbo.sock where that folder is ours; else
   * one in /tmp; where nothing stands there, the system service's.
   */
  socket?: string;
  /** Starts a daemon where none runs, and waits until it answers. */
  startDaemon?: boolean;
  /** By default `rumbod` on the PATH. */
  daemonProgram?: string;
  /** For a start: milliseconds until the daemon must answer. 15,000 by default. */
  startTimeoutMs?: number;
  /** Names the app for fair shares and metrics. */
  app?: string;
}

function stat(file: string): fs.Stats | undefined {
  return fs.statSync(file, { throwIfNoEntry: false });
}

function uid(): number {
  return process.getuid!();
}

/** Where the daemon's socket is looked for. */
export function defaultSocket(env: NodeJS.ProcessEnv = process.env): string {
  if (env['RUMBO_SOCKET']) return path.resolve(env['RUMBO_SOCKET']);
  const runtime = env['XDG_RUNTIME_DIR'] ?? '';
  const info = runtime.startsWith('/') ? stat(runtime) : undefined;
  const own = info?.isDirectory() && info.uid === uid() ? `${runtime}/rumbo/rumbo.sock` : `/tmp/rumbo-${uid()}/rumbo.sock`;
  if (stat(own) || !stat(SYSTEM_SOCKET)) return own;
  try {
    fs.accessSync(SYSTEM_SOCKET, fs.constants.W_OK);
    return SYSTEM_SOCKET;
  } catch {
    return own;
  }
}

function unreachable(message: string, nextStep = START): RumboError {
  return new DaemonUnreachable(message, { code: 'UNAVAILABLE', reason: 'DAEMON_UNREACHABLE', nextStep });
}

function denied(message: string): RumboError {
  return new PermissionDenied(message,
    { code: 'PERMISSION_DENIED', reason: 'PERMISSION_DENIED', nextStep: 'Use a socket of your own: set RUMBO_SOCKET.' });
}

/** undefined where somebody accepts connections on `file` at this moment, else what is really the matter. */
export async function probe(file: string, mustBeOurs: boolean): Promise<RumboError | undefined> {
  if (!file || Buffer.byteLength(file) > 107) {
    return new InvalidArgument(`the socket path is empty or longer than 107 bytes: ${file}`,
      { code: 'INVALID_ARGUMENT', reason: 'INVALID_ARGUMENT', nextStep: 'Choose a shorter one with RUMBO_SOCKET.' });
  }
  let info: fs.Stats | undefined;
  try {
    info = stat(file);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    return code === 'EACCES' ? denied(`no access to the socket ${file}`) : unreachable(`no socket ${file}: ${code}`);
  }
  if (!info) return unreachable(`no daemon runs: there is no socket ${file}`);
  if (!info.isSocket()) return unreachable(`${file} is not a socket`);
  if (mustBeOurs && info.uid !== uid() && info.uid !== 0) {
    return denied(`the socket ${file} belongs to another user (uid ${info.uid})`);
  }
  return new Promise((resolve) => {
    const socket = net.connect({ path: file });
    socket.once('connect', () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'EAGAIN') resolve(undefined); // Its backlog is full: it lives.
      else if (error.code === 'EACCES' || error.code === 'EPERM') resolve(denied(`no access to the socket ${file}`));
      else if (error.code === 'ECONNREFUSED') resolve(unreachable(`no daemon runs: nobody listens on ${file}`));
      else resolve(unreachable(`connect to ${file}: ${error.code}`));
    });
  });
}

function stateDir(): string {
  if (process.env['RUMBO_STATE_DIR']) return path.resolve(process.env['RUMBO_STATE_DIR']);
  const data = process.env['XDG_DATA_HOME'] ?? '';
  return (data.startsWith('/') ? data : `${process.env['HOME'] ?? `/tmp/rumbo-${uid()}`}/.local/share`) + '/rumbo';
}

function findOnPath(program: string): string | undefined {
  for (const dir of (process.env['PATH'] ?? '').split(':')) {
    const file = path.join(dir || '.', program);
    try {
      fs.accessSync(file, fs.constants.X_OK);
      return file;
    } catch { /* not there */ }
  }
  return undefined;
}

function makePrivate(dir: string): void {
  fs.mkdirSync(dir, { mode: 0o700, recursive: true });
  const info = fs.lstatSync(dir);
  if (!info.isDirectory() || info.uid !== uid() || (info.mode & 0o022) !== 0) {
    throw new PermissionDenied(`${dir} is not a folder that only you can write to`,
      { code: 'PERMISSION_DENIED', reason: 'PERMISSION_DENIED', nextStep: 'Remove it, or set RUMBO_SOCKET.' });
  }
}

function tail(log: string, offset: number): string {
  const bytes = fs.readFileSync(log).subarray(offset);
  return bytes.subarray(-600).toString().trim();
}

async function start(socket: string, mustBeOurs: boolean, options: ConnectOptions): Promise<void> {
  const deadline = performance.now() + (options.startTimeoutMs ?? 15000);
  const program = options.daemonProgram ?? findOnPath('rumbod');
  if (!program) throw unreachable('no daemon runs, and rumbod is not on the PATH', 'Install Rumbo, or start rumbod by hand.');
  const state = stateDir();
  fs.mkdirSync(state, { mode: 0o700, recursive: true });
  if (mustBeOurs) makePrivate(path.dirname(socket));
  else fs.mkdirSync(path.dirname(socket), { mode: 0o700, recursive: true });
  const log = `${state}/rumbod.log`;
  const out = fs.openSync(log, 'a', 0o600);
  const offset = fs.fstatSync(out).size;
  // Two programs may start daemons at once: the second of them finds the state folder locked and ends, and both
  // callers then reach the first. So an end is a failure only where nobody answers.
  const child = spawn(program, ['--socket', socket], { detached: true, stdio: ['ignore', out, out] });
  fs.closeSync(out);
  child.unref();
  let ended: string | undefined;
  child.once('error', (error) => (ended = error.message));
  child.once('exit', (code, signal) => (ended = signal ? `signal ${signal}` : `exit status ${code}`));
  let endedAt = 0;
  while (await probe(socket, mustBeOurs)) {
    if (ended && endedAt === 0) endedAt = performance.now();
    const late = performance.now() >= deadline;
    if (late || (ended && performance.now() - endedAt > 300)) {
      const what = late ? 'the daemon was not ready in time' : `the daemon ended while starting (${ended})`;
      const text = tail(log, offset);
      throw unreachable(text ? `${what}:\n${text}` : what, `The whole log is ${log}.`);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The path of a socket that somebody listens on. */
export async function find(options: ConnectOptions): Promise<string> {
  const socket = options.socket ? path.resolve(options.socket) : defaultSocket();
  // A place that we chose ourselves may lie in a shared folder; one that was named is trusted.
  const mustBeOurs = !options.socket && !process.env['RUMBO_SOCKET'];
  const error = await probe(socket, mustBeOurs);
  if (!error) return socket;
  if (!options.startDaemon || error.reason !== 'DAEMON_UNREACHABLE') throw error;
  await start(socket, mustBeOurs, options);
  return socket;
}
