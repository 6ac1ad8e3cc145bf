/** The wire: message types from the protocol's own descriptors, and plain values out of messages. */
import { readFileSync } from 'node:fs';
import { create, createFileRegistry, fromBinary, toBinary, type DescMessage, type Message } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';

const registry = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, readFileSync(new URL('../wire.binpb', import.meta.url))));

export function messageType(name: string): DescMessage {
  const found = registry.getMessage(name);
  if (!found) throw new Error(`no message ${name} in wire.binpb`);
  return found;
}

export interface Method {
  path: string;
  serialize: (request: unknown) => Buffer;
  deserialize: (bytes: Buffer) => unknown;
}

const methods = new Map<string, Method>();

/** `rpc` of a service of rumbo.v1, with requests given as plain values and answers as plain values. */
export function method(service: string, rpc: string): Method {
  const key = `/rumbo.v1.${service}/${rpc}`;
  let found = methods.get(key);
  if (!found) {
    const desc = registry.getService(`rumbo.v1.${service}`)?.methods.find((m) => m.name === rpc);
    if (!desc) throw new Error(`no method ${key} in wire.binpb`);
    found = {
      path: key,
      serialize: (request) => Buffer.from(toBinary(desc.input, create(desc.input, request as never))),
      deserialize: (bytes) => plain(fromBinary(desc.output, bytes) as Message),
    };
    methods.set(key, found);
  }
  return found;
}

/**
 * A message as a plain value: 64-bit integers as numbers (all of ours stay below 2^53), a oneof as the one field that
 * is set, absent optional fields left out.
 */
function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object' || value instanceof Uint8Array) return value;
  const out: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(value)) {
    if (key[0] === '$' || field === undefined) continue;
    if (isOneof(field)) {
      if (field.case !== undefined) out[field.case] = plain(field.value);
    } else {
      out[key] = plain(field);
    }
  }
  return out;
}

function isOneof(field: unknown): field is { case: string | undefined; value?: unknown } {
  return typeof field === 'object' && field !== null && 'case' in field && !('$typeName' in field);
}
