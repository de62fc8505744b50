import { StreamFault } from '../sse.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

export function parseObject(json: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    // Without the parser's message, which quotes the text.
    throw new StreamFault('invalid JSON');
  }
  if (!isObject(value)) throw new StreamFault('expected an object as event');
  return value;
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function text(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value === undefined || value === null) return '';
  throw new StreamFault('expected a string as text');
}
