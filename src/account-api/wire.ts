/** The format of values in bodies of the account host. */
import Type from 'typebox';
import type { TObject, TSchema } from 'typebox';

import { ApiError } from '../platform/errors.ts';

/** Unix seconds. */
export const secondsOf = (ms: number): number => Math.floor(ms / 1000);
export const secondsOrNull = (ms: number | null): number | null => (ms === null ? null : secondsOf(ms));

/** Throws above 2^53, where a JSON number is no longer exact: ninety million dollars in microcents. */
export function wholeOf(amount: bigint): number {
  const number = Number(amount);
  if (!Number.isSafeInteger(number)) throw new Error('an amount is too large for a JSON number');
  return number;
}

export const microcentsPerCent = 1_000_000n;
/** The largest amount in a body: in microcents it is still exact as a JSON number. */
export const centsMax = Number(BigInt(Number.MAX_SAFE_INTEGER) / microcentsPerCent);
/** Rounds towards zero. */
export const centsOf = (microcents: bigint): number => wholeOf(microcents / microcentsPerCent);

/** An amount in microcents that a body has in one of two fields. Throws `unsupported_value` where it has both. */
export function exactAmount<Cents extends string, Exact extends string>(
  body: { readonly [Name in Cents | Exact]?: number | null | undefined },
  inCents: Cents,
  inMicrocents: Exact,
): bigint | null | undefined {
  const cents = body[inCents];
  const exact = body[inMicrocents];
  if (cents !== undefined && exact !== undefined)
    throw new ApiError('unsupported_value', `Give either ${inCents} or ${inMicrocents}.`, { param: inMicrocents });
  if (cents === null || exact === null) return null;
  return exact === undefined ? (cents === undefined ? undefined : BigInt(cents) * microcentsPerCent) : BigInt(exact);
}

export const nullable = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()]);

export const pageQuery = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, default: 20 })),
  after: Type.Optional(
    Type.String({ minLength: 1, maxLength: 100, description: '`next_after` of the previous page.' }),
  ),
};
export const pageLimit = (limit: number | undefined): number => limit ?? 20;

export const listSchema = (of: TObject) =>
  Type.Object({
    object: Type.Literal('list'),
    data: Type.Array(of),
    has_more: Type.Boolean(),
    next_after: Type.Optional(Type.String()),
  });

/** The schema of lists without pages. */
export const wholeListSchema = (of: TObject) =>
  Type.Object({ object: Type.Literal('list'), data: Type.Array(of), has_more: Type.Literal(false) });

interface Page<Shown> {
  readonly object: 'list';
  readonly data: readonly Shown[];
  readonly has_more: boolean;
  readonly next_after?: string;
}

/** A page; the next one begins after `nextAfter`, if there is one. */
export const page = <Shown>(data: readonly Shown[], nextAfter?: string): Page<Shown> => ({
  object: 'list',
  data,
  has_more: nextAfter !== undefined,
  ...(nextAfter === undefined ? {} : { next_after: nextAfter }),
});

/** Makes a page from rows that include one more than its limit. */
export function listOf<Row, Shown>(
  rows: readonly Row[],
  limit: number,
  shown: (row: Row) => Shown,
  idOf: (row: Row) => string,
): Page<Shown> {
  const last = rows.length > limit ? rows[limit - 1] : undefined;
  return page(rows.slice(0, limit).map(shown), last === undefined ? undefined : idOf(last));
}
