/** Client of the Rumbo inference daemon. */
export { Client, TextStream } from './client.js';
export type { CallOptions, LoadOptions, Placement, TextOptions } from './client.js';
export { defaultSocket } from './connect.js';
export type { ConnectOptions } from './connect.js';
export * from './errors.js';
export type { ChatInput } from './requests.js';
export type { Schema } from './schema.js';
export type * from './types.js';
