/** What can go wrong. Every failure of a call is a RumboError; its class says what to do about it. */
import { status as Status, type Metadata, type ServiceError } from '@grpc/grpc-js';
import { fromBinary } from '@bufbuild/protobuf';
import { messageType } from './wire.js';

export interface ErrorFields {
  /** gRPC's name of the kind of failure, as "NOT_FOUND". */
  code: string;
  /** Why, as the daemon spells it, as "MODEL_NOT_FOUND"; "" where it gave none. */
  reason?: string;
  /** What to do about it, or "". */
  nextStep?: string;
  /** Milliseconds after which a retry makes sense; undefined where the daemon did not say that one does. */
  retryAfterMs?: number;
}

/** A failed call. */
export class RumboError extends Error {
  readonly code: string;
  readonly reason: string;
  readonly nextStep: string;
  readonly retryAfterMs: number | undefined;

  constructor(message: string, fields: ErrorFields) {
    super(fields.nextStep ? `${message} ${fields.nextStep}` : message);
    this.name = new.target.name;
    this.code = fields.code;
    this.reason = fields.reason ?? '';
    this.nextStep = fields.nextStep ?? '';
    this.retryAfterMs = fields.retryAfterMs;
  }
}

/** A value of the request is missing or out of range. */
export class InvalidArgument extends RumboError {}
/** No such model, instance, profile or file. */
export class NotFound extends RumboError {}
/** The name is taken by other content. */
export class AlreadyExists extends RumboError {}
/** The caller may not do this. */
export class PermissionDenied extends RumboError {}
/** No placement keeps the contract, or the model cannot do this. A retry does not help. */
export class Refused extends RumboError {}
/** Memory does not suffice, or too many requests wait; see retryAfterMs. */
export class ResourceExhausted extends RumboError {}
/** The engine or the instance went away during the call. */
export class Unavailable extends RumboError {}
/** No daemon answers. */
export class DaemonUnreachable extends Unavailable {}
/** The timeout passed first. */
export class DeadlineExceeded extends RumboError {}
/** The call was cancelled. */
export class Cancelled extends RumboError {}
/** The answer does not have the shape that was asked for; `text` is what came. */
export class WrongShape extends RumboError {
  readonly text: string;
  constructor(message: string, text: string) {
    super(message, { code: 'DATA_LOSS', reason: 'WRONG_SHAPE', nextStep: 'Allow more tokens, or simplify the schema.' });
    this.text = text;
  }
}

type Kind = new (message: string, fields: ErrorFields) => RumboError;
const BY_CODE: Record<string, Kind> = {
  INVALID_ARGUMENT: InvalidArgument, OUT_OF_RANGE: InvalidArgument, NOT_FOUND: NotFound, ALREADY_EXISTS: AlreadyExists,
  PERMISSION_DENIED: PermissionDenied, UNAUTHENTICATED: PermissionDenied, FAILED_PRECONDITION: Refused,
  RESOURCE_EXHAUSTED: ResourceExhausted, UNAVAILABLE: Unavailable, DEADLINE_EXCEEDED: DeadlineExceeded,
  CANCELLED: Cancelled,
};

/** For what no daemon explained: reason, message, next step. */
const LOCAL: Record<string, [string, string, string]> = {
  UNAVAILABLE: ['DAEMON_UNREACHABLE', 'the connection to the daemon failed',
    'Look whether it runs with `rumbo status`; start it with `rumbod`.'],
  DEADLINE_EXCEEDED: ['DEADLINE_EXCEEDED', 'the daemon did not answer in time',
    'Allow more time, or look what it does with `rumbo ps`.'],
  CANCELLED: ['CANCELLED', 'cancelled', ''],
  UNIMPLEMENTED: ['NOT_IMPLEMENTED', 'this daemon cannot do that', 'Use a daemon and a client of the same version.'],
};

interface Any { typeUrl: string; value: Uint8Array }

function details(metadata: Metadata | undefined): Partial<ErrorFields> {
  const found: Partial<ErrorFields> = {};
  for (const value of metadata?.get('grpc-status-details-bin') ?? []) {
    const status = fromBinary(messageType('google.rpc.Status'), value as Buffer) as unknown as { details: Any[] };
    for (const any of status.details) {
      const name = any.typeUrl.slice(any.typeUrl.lastIndexOf('/') + 1);
      if (name === 'google.rpc.ErrorInfo') {
        const info = fromBinary(messageType(name), any.value) as unknown as
          { reason: string; domain: string; metadata: Record<string, string> };
        if (info.domain === 'rumbo') {
          found.reason = info.reason;
          found.nextStep = info.metadata['next_step'] ?? '';
        }
      } else if (name === 'google.rpc.RetryInfo') {
        const info = fromBinary(messageType(name), any.value) as unknown as
          { retryDelay?: { seconds: bigint; nanos: number } };
        if (info.retryDelay) found.retryAfterMs = Number(info.retryDelay.seconds) * 1000 + info.retryDelay.nanos / 1e6;
      }
    }
  }
  return found;
}

/** gRPC's error as ours. */
export function fromRpc(error: ServiceError): RumboError {
  const code = Status[error.code] ?? 'UNKNOWN';
  let message = error.details ?? '';
  const found = details(error.metadata);
  const local = LOCAL[code];
  if (!found.reason && local) {
    const [reason, text, nextStep] = local;
    message = message && (code === 'UNAVAILABLE' || code === 'UNIMPLEMENTED') ? `${text}: ${message}` : text;
    Object.assign(found, { reason, nextStep });
  }
  const kind = found.reason === 'DAEMON_UNREACHABLE' ? DaemonUnreachable : BY_CODE[code] ?? RumboError;
  return new kind(message || code, { code, ...found });
}
