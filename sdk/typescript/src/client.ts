/** The way from an app to Rumbo. */
import * as grpc from '@grpc/grpc-js';
import { find, type ConnectOptions } from './connect.js';
import { Cancelled, fromRpc, RumboError, WrongShape } from './errors.js';
import { toolOf, turnOf, samplingOf, type ChatInput } from './requests.js';
import { schemaOf, type Schema } from './schema.js';
import type {
  Answer, CheckResult, Chunk, Contract, Engine, Explanation, Finding, Finished, Instance, Loaded, Model, ModelDetails, Plan,
  PlanOverrides, Progress, RerankResult, Sampling, Started, Status, Tokens, Tool, ToolCall, Topology, Workload,
} from './types.js';
import { method } from './wire.js';

/** Of every call. */
export interface CallOptions {
  /**
   * Milliseconds. Without it, calls that answer at once have 60,000, and streams, loads, imports and embeddings no
   * bound.
   */
  timeoutMs?: number;
  /** Aborting it cancels the call. */
  signal?: AbortSignal;
}

export interface Placement {
  workload?: Workload;
  contract?: Contract;
  overrides?: PlanOverrides;
}

export interface TextOptions extends Sampling, CallOptions {
  tools?: Tool[];
  /** "auto", "none", "required". */
  toolChoice?: string;
  /** Let models that can do so think first. */
  thinking?: boolean;
  /** "interactive", "normal", "batch". */
  priority?: string;
}

export interface LoadOptions extends Placement, CallOptions {
  /** Seconds without a request after which the model may be unloaded; negative: never. */
  keepAliveS?: number;
  onProgress?: (progress: Progress) => void;
}

type Wire = Record<string, any>;

const UNARY_TIMEOUT_MS = 60_000;
const MAX_TRIES = 2;
const MAX_RETRY_WAIT_MS = 5000;
const CHANNEL = {
  'grpc.max_receive_message_length': 64 << 20,
  'grpc.max_send_message_length': 64 << 20,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
  'grpc.enable_http_proxy': 0,
  'grpc.enable_retries': 0,
  'grpc.default_authority': 'localhost',
};

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    }
    signal?.addEventListener('abort', done, { once: true });
  });
}

/** Only where the daemon said when, at most twice, and only waits that end before the deadline. */
function mayRetry(error: RumboError, tries: number, deadline: number): boolean {
  const wait = error.retryAfterMs;
  return wait !== undefined && wait <= MAX_RETRY_WAIT_MS && tries < MAX_TRIES && performance.now() + wait < deadline;
}

function cancelled(): RumboError {
  return new Cancelled('cancelled', { code: 'CANCELLED', reason: 'CANCELLED' });
}

/**
 * An answer while it is made: `for await` over its chunks; failures are thrown. Leaving the loop early, cancel() and the
 * signal end what still runs. A reader that stops is felt by the daemon: nothing piles up here.
 */
export class TextStream implements AsyncIterable<Chunk> {
  #open: () => grpc.ClientReadableStream<Wire>;
  #call: grpc.ClientReadableStream<Wire>;
  #deadline: number;
  #signal: AbortSignal | undefined;
  #onAbort = () => this.#call.cancel();
  #text: string[] = [];
  #reasoning: string[] = [];
  #calls: ToolCall[] = [];
  #iterator: AsyncGenerator<Chunk, void> | undefined;
  /** Where it runs; undefined before the first chunk. */
  started: Started | undefined;
  /** How it ended; undefined before it did. */
  finished: Finished | undefined;

  /** @internal */
  constructor(open: () => grpc.ClientReadableStream<Wire>, options: CallOptions) {
    this.#open = open;
    this.#deadline = performance.now() + (options.timeoutMs ?? Infinity);
    this.#signal = options.signal;
    this.#call = open();
    // Whoever never iterates hears nothing, rather than an uncaught error.
    this.#call.on('error', () => {});
    if (this.#signal?.aborted) this.#call.cancel();
    this.#signal?.addEventListener('abort', this.#onAbort);
  }

  [Symbol.asyncIterator](): AsyncIterator<Chunk> {
    return (this.#iterator ??= this.#read());
  }

  async *#read(): AsyncGenerator<Chunk, void> {
    try {
      for (let tries = 0; ; ++tries) {
        try {
          for await (const message of this.#call) {
            const chunk = this.#take(message as Wire);
            if (chunk) yield chunk;
          }
          break;
        } catch (failed) {
          const error = failed instanceof RumboError ? failed : fromRpc(failed as grpc.ServiceError);
          if (this.started || this.#signal?.aborted || !mayRetry(error, tries, this.#deadline)) throw error;
          await sleep(error.retryAfterMs!, this.#signal);
          if (this.#signal?.aborted) throw cancelled();
          this.#call = this.#open();
          this.#call.on('error', () => {});
        }
      }
      if (!this.finished) {
        throw new RumboError('the answer ended without its last message',
          { code: 'INTERNAL', reason: 'INTERNAL', nextStep: 'This is a fault of the daemon; please report it.' });
      }
    } finally {
      this.#signal?.removeEventListener('abort', this.#onAbort);
      this.#call.cancel();
    }
  }

  #take(message: Wire): Chunk | undefined {
    if (message['chunk']) {
      const chunk = message['chunk'] as Chunk;
      this.#text.push(chunk.text);
      if (chunk.reasoning) this.#reasoning.push(chunk.reasoning);
      for (const delta of chunk.toolCalls) {
        const call = (this.#calls[delta.index] ??= { id: '', name: '', argumentsJson: '' });
        call.id += delta.id;
        call.name += delta.name;
        call.argumentsJson += delta.argumentsJson;
      }
      return chunk;
    }
    if (message['started']) this.started = message['started'] as Started;
    else if (message['finished']) this.finished = message['finished'] as Finished;
    return undefined;
  }

  /** The whole answer, with the chunks that were taken already; waits for the rest. */
  async answer(): Promise<Answer> {
    for await (const _ of this) { /* kept by #take */ }
    return {
      text: this.#text.join(''), reasoning: this.#reasoning.join(''), toolCalls: this.#calls.filter(Boolean),
      started: this.started, finished: this.finished!,
    };
  }

  /** Ends the answer. */
  cancel(): void {
    this.#call.cancel();
  }
}

/** A connection to one daemon. Calls reject with RumboError where they fail. */
export class Client {
  #grpc: grpc.Client;
  #app: string;

  private constructor(socket: string, app: string) {
    this.#grpc = new grpc.Client(`unix:${socket}`, grpc.credentials.createInsecure(), CHANNEL);
    this.#app = app;
  }

  /**
   * Finds the daemon, starts one where asked to. Rejects with DaemonUnreachable and what is the matter, or
   * PermissionDenied where the socket is not ours.
   */
  static async connect(options: ConnectOptions = {}): Promise<Client> {
    return new Client(await find(options), options.app ?? '');
  }

  close(): void {
    this.#grpc.close();
  }

  // --- the machine

  async devices(options: { hardware?: string; refresh?: boolean } & CallOptions = {}): Promise<Topology> {
    const { hardware = '', refresh = false } = options;
    return (await this.#unary('DeviceService', 'ListDevices', { hardware, refresh }, options))['topology'];
  }

  async instances(options: CallOptions = {}): Promise<Instance[]> {
    return (await this.#unary('InstanceService', 'ListInstances', {}, options))['instances'];
  }

  async status(options: CallOptions = {}): Promise<Status> {
    return (await this.#unary('AdminService', 'GetStatus', {}, options)) as Status;
  }

  async doctor(options: CallOptions = {}): Promise<Finding[]> {
    return (await this.#unary('AdminService', 'Doctor', {}, options))['findings'];
  }

  /** What is known about engines (or the one named), and which are installed. */
  async engines(name = '', options: CallOptions = {}): Promise<Engine[]> {
    return (await this.#unary('AdminService', 'ListEngines', { name }, options))['engines'];
  }

  // --- models

  async models(options: CallOptions = {}): Promise<Model[]> {
    return (await this.#unary('ModelService', 'ListModels', {}, options))['models'];
  }

  async model(name: string, options: CallOptions = {}): Promise<ModelDetails> {
    return (await this.#unary('ModelService', 'GetModel', { name }, options)) as ModelDetails;
  }

  async check(name: string, options: CallOptions = {}): Promise<CheckResult[]> {
    return (await this.#unary('ModelService', 'CheckModel', { name }, options))['results'];
  }

  /** Gives the bytes that became free. */
  async delete(name: string, options: CallOptions = {}): Promise<number> {
    return (await this.#unary('ModelService', 'DeleteModel', { name }, options))['freedBytes'];
  }

  async pin(name: string, pinned = true, options: CallOptions = {}): Promise<void> {
    await this.#unary('ModelService', 'PinModel', { name, pinned }, options);
  }

  /** Takes a file on the daemon's machine into the store. */
  async importModel(path: string, options: {
    name?: string; expectedSha256?: string; replace?: boolean; onProgress?: (p: Progress) => void;
  } & CallOptions = {}): Promise<Model> {
    const { name = '', expectedSha256 = '', replace = false } = options;
    return this.#progress('ImportModel', { path, name, expectedSha256, replace }, 'model', options);
  }

  async pull(reference: string, options: { name?: string; onProgress?: (p: Progress) => void } & CallOptions = {}):
      Promise<Model> {
    return this.#progress('PullModel', { reference, name: options.name ?? '' }, 'model', options);
  }

  async load(name: string, options: LoadOptions = {}): Promise<Loaded> {
    const { keepAliveS } = options;
    return this.#progress('LoadModel', {
      name, ...placement(options), keepAliveS: keepAliveS === undefined ? undefined : BigInt(keepAliveS),
    }, 'loaded', options);
  }

  /** `name`: a model or an instance. Gives the ids of the instances that end. */
  async unload(name: string, options: CallOptions = {}): Promise<string[]> {
    return (await this.#unary('ModelService', 'UnloadModel', { name }, options))['instanceIds'];
  }

  // --- plans

  async plan(model: string, options: Placement & { hardware?: string; system?: string } & CallOptions = {}):
      Promise<Plan> {
    const { hardware = '', system = '' } = options;
    return (await this.#unary('PlanService', 'MakePlan', { model, hardware, system, ...placement(options) },
      options))['plan'];
  }

  /** `id`: of an instance or a request, or a model's name. */
  async explain(id: string, options: CallOptions = {}): Promise<Explanation> {
    return (await this.#unary('PlanService', 'Explain', { id }, options)) as Explanation;
  }

  // --- inference

  /** Answers a conversation; `input` is a question, or the turns so far. */
  chat(model: string, input: ChatInput, options: TextOptions = {}): TextStream {
    const turns = typeof input === 'string' ? [{ role: 'user', text: input }] : input;
    return this.#text('Chat', {
      model, messages: turns.map(turnOf), tools: (options.tools ?? []).map(toolOf), toolChoice: options.toolChoice ?? '',
      thinking: options.thinking,
    }, options);
  }

  /** Continues a raw prompt. */
  generate(model: string, prompt: string, options: TextOptions = {}): TextStream {
    return this.#text('Generate', { model, input: { case: 'prompt', value: prompt } }, options);
  }

  /**
   * An answer of a given shape: `schema` is a JSON Schema or a zod type. The engine can write nothing else; the value is
   * parsed, and checked where the schema can. Rejects with WrongShape where the answer was cut off.
   */
  async chatAs<T = unknown>(model: string, input: ChatInput, schema: Schema<T>, options: TextOptions = {}): Promise<T> {
    const { json, parse } = await schemaOf(schema);
    const answer = await this.chat(model, input, { ...options, jsonSchema: json }).answer();
    let value: unknown;
    try {
      value = JSON.parse(answer.text);
    } catch {
      throw new WrongShape(`the answer is no whole JSON text (it ended by ${answer.finished.reason})`, answer.text);
    }
    try {
      return parse(value);
    } catch (error) {
      throw new WrongShape(`the answer does not fit the schema: ${(error as Error).message}`, answer.text);
    }
  }

  async embed(model: string, inputs: string[], options: { dimensions?: number } & CallOptions = {}): Promise<number[][]> {
    const response = await this.#unary('InferenceService', 'Embed',
      { model, inputs, dimensions: options.dimensions ?? 0 }, options, Infinity);
    return response['embeddings'].map((embedding: { values: number[] }) => embedding.values);
  }

  /** Best first. */
  async rerank(model: string, query: string, documents: string[], options: { topN?: number } & CallOptions = {}):
      Promise<RerankResult[]> {
    return (await this.#unary('InferenceService', 'Rerank', { model, query, documents, topN: options.topN ?? 0 }, options,
      Infinity))['results'];
  }

  async tokenize(model: string, text: string, options: CallOptions = {}): Promise<Tokens> {
    return (await this.#unary('InferenceService', 'Tokenize', { model, text }, options, Infinity)) as Tokens;
  }

  async detokenize(model: string, ids: number[], options: CallOptions = {}): Promise<string> {
    return (await this.#unary('InferenceService', 'Detokenize', { model, ids }, options, Infinity))['text'];
  }

  // --- how calls are made

  async #unary(service: string, rpc: string, request: object, options: CallOptions, timeoutMs = UNARY_TIMEOUT_MS):
      Promise<Wire> {
    const deadline = performance.now() + (options.timeoutMs ?? timeoutMs);
    for (let tries = 0; ; ++tries) {
      try {
        return await this.#once(method(service, rpc), request, deadline, options.signal);
      } catch (failed) {
        const error = failed as RumboError;
        if (options.signal?.aborted || !mayRetry(error, tries, deadline)) throw error;
        await sleep(error.retryAfterMs!, options.signal);
        if (options.signal?.aborted) throw cancelled();
      }
    }
  }

  #once(m: ReturnType<typeof method>, request: object, deadline: number, signal: AbortSignal | undefined): Promise<Wire> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(cancelled());
      const call = this.#grpc.makeUnaryRequest(m.path, m.serialize, m.deserialize, request, new grpc.Metadata(),
        callOptions(deadline), (error, response) => {
          signal?.removeEventListener('abort', abort);
          if (error) reject(fromRpc(error));
          else resolve(response as Wire);
        });
      const abort = () => call.cancel();
      signal?.addEventListener('abort', abort);
    });
  }

  #stream(m: ReturnType<typeof method>, request: object, deadline: number): grpc.ClientReadableStream<Wire> {
    return this.#grpc.makeServerStreamRequest(m.path, m.serialize, m.deserialize as (b: Buffer) => Wire, request,
      new grpc.Metadata(), callOptions(deadline));
  }

  async #progress<T>(rpc: string, request: object, field: string,
    options: CallOptions & { onProgress?: (p: Progress) => void }): Promise<T> {
    if (options.signal?.aborted) throw cancelled();
    const call = this.#stream(method('ModelService', rpc), request, performance.now() + (options.timeoutMs ?? Infinity));
    const abort = () => call.cancel();
    options.signal?.addEventListener('abort', abort);
    let result: T | undefined;
    try {
      for await (const message of call) {
        if (message['progress']) options.onProgress?.(message['progress'] as Progress);
        else result = message[field] as T;
      }
    } catch (failed) {
      throw failed instanceof Error && 'details' in failed ? fromRpc(failed as grpc.ServiceError) : failed;
    } finally {
      options.signal?.removeEventListener('abort', abort);
      call.cancel();
    }
    if (result === undefined) {
      throw new RumboError('the daemon ended the call without a result', { code: 'INTERNAL', reason: 'INTERNAL' });
    }
    return result;
  }

  #text(rpc: string, request: object, options: TextOptions): TextStream {
    const whole = {
      ...request, sampling: samplingOf(options), options: { app: this.#app, priority: options.priority ?? '' },
    };
    const m = method('InferenceService', rpc);
    const deadline = performance.now() + (options.timeoutMs ?? Infinity);
    return new TextStream(() => this.#stream(m, whole, deadline), options);
  }
}

function placement({ workload, contract, overrides }: Placement): object {
  return { workload, contract, overrides };
}

function callOptions(deadline: number): grpc.CallOptions {
  return deadline === Infinity ? {} : { deadline: Date.now() + Math.max(0, deadline - performance.now()) };
}
