import type { Asked } from '../conversation.ts';
import type { FamilyName } from '../search.ts';
import type { StreamEvent } from '../../../api/sse.ts';

export interface Usage {
  /** Cached tokens included. */
  readonly prompt: number;
  readonly cached: number;
  /** Reasoning included. */
  readonly completion: number;
  readonly reasoning: number;
}

/** What an event, or a whole answer, adds to the answer. `call` is the key of a call in its answer. */
export type Delta =
  | { readonly kind: 'text' | 'reasoning'; readonly text: string }
  | { readonly kind: 'call'; readonly call: string; readonly id: string; readonly name: string }
  | { readonly kind: 'arguments'; readonly call: string; readonly text: string }
  | { readonly kind: 'finish'; readonly reason: string }
  | { readonly kind: 'usage'; readonly usage: Usage }
  /** `error` is as the API has written it. */
  | { readonly kind: 'error'; readonly error: unknown };

/** One way of asking: how a request is written, and how its answer is read. Pure; an answer may be anything. */
export interface Family {
  readonly name: FamilyName;
  /** Proper name, the same in every language. */
  readonly title: string;
  readonly path: string;
  body(asked: Asked): Readonly<Record<string, unknown>>;
  readEvent(event: StreamEvent, json: unknown): readonly Delta[];
  readWhole(json: unknown): readonly Delta[];
}

/** Without what is not sent. */
export const sent = (fields: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

/** What lies at a path of a value that may be anything. */
export function at(json: unknown, ...path: readonly (string | number)[]): unknown {
  let value = json;
  for (const key of path) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Readonly<Record<string | number, unknown>>)[key];
  }
  return value;
}

export const listAt = (json: unknown, ...path: readonly (string | number)[]): readonly unknown[] => {
  const value = at(json, ...path);
  return Array.isArray(value) ? value : [];
};

export const stringAt = (json: unknown, ...path: readonly (string | number)[]): string | undefined => {
  const value = at(json, ...path);
  return typeof value === 'string' ? value : undefined;
};

export const countAt = (json: unknown, ...path: readonly (string | number)[]): number => {
  const value = at(json, ...path);
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0;
};

/** An object, even where a model has written something else. */
export function objectOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Readonly<Record<string, unknown>>;
  } catch {
    // Cut off, for example by the longest answer that was asked for.
  }
  return {};
}
