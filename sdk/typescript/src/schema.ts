/** Structured answers from native types. */

/** What a zod type is to us: it can parse, and zod says which JSON Schema it stands for. */
export interface ZodLike<T> {
  parse(value: unknown): T;
  _zod: unknown;
}

/** A JSON Schema as a value, or a zod type (zod 4 or later, which the app brings). */
export type Schema<T> = ZodLike<T> | { [keyword: string]: unknown };

function isZod<T>(schema: Schema<T>): schema is ZodLike<T> {
  return '_zod' in schema && typeof (schema as ZodLike<T>).parse === 'function';
}

/** The JSON Schema for the engine, and what makes a T of the parsed answer. */
export async function schemaOf<T>(schema: Schema<T>): Promise<{ json: object; parse: (value: unknown) => T }> {
  if (!isZod(schema)) return { json: schema, parse: (value) => value as T };
  const zod = await import('zod');
  return { json: zod.toJSONSchema(schema as never) as object, parse: (value) => schema.parse(value) };
}
