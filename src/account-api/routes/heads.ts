import Type from 'typebox';

import { ApiError } from '../../platform/errors.ts';
import { pageHeaders } from '../../platform/html.ts';
import { shownKey } from '../../store/proofs/signing-keys.ts';
import { notThere } from '../input.ts';
import { headsPage } from '../pages.ts';
import { everyRole, Reply, route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import { visibleUsage } from '../visible-usage.ts';
import { listSchema, nullable, pageLimit, pageQuery } from '../wire.ts';
import { notKept } from './usage.ts';

const hash = Type.String({ description: 'SHA-256 in hex.' });
const path = Type.Array(Type.String({ description: '`L:` or `R:`, the side of the sibling, and its hash.' }));
const headSchema = Type.Object({
  date: Type.String({ description: '`2026-11-28`, in UTC.' }),
  root: hash,
  previous: nullable(hash),
  key_id: Type.String(),
  signed_at: Type.String({ description: 'Milliseconds since 1970.' }),
  signature: Type.String({ description: 'Ed25519, in hex.' }),
});
const keySchema = Type.Object({ id: Type.String(), public_key: Type.String({ description: 'Ed25519, in hex.' }) });
const proofSchema = Type.Object({
  object: Type.Literal('receipt_proof'),
  request: Type.Record(Type.String(), nullable(Type.String())),
  request_path: path,
  account_head: Type.Object({
    account_id: Type.String(),
    date: Type.String(),
    requests: Type.String(),
    late: Type.String(),
    cost: Type.String({ description: 'Microcents.' }),
    root: hash,
    previous: nullable(hash),
  }),
  account_path: path,
  day_head: headSchema,
  key: keySchema,
});

const tag = 'Usage';
const datePattern = '^\\d{4}-\\d\\d-\\d\\d$';
const after = Type.Optional(Type.String({ pattern: datePattern }));

/** Signed days, for everybody, and proofs of single requests (decision 065). */
export const headRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path: '/v1/heads',
    operationId: 'listHeads',
    tag,
    summary: 'List signed days',
    description:
      'The signed heads of all days of this service, newest first, and all public keys that have ever signed one. Keep them: what is signed cannot be changed later without being noticed.',
    access: 'anyone',
    query: Type.Object({ ...pageQuery, after }),
    answers: [
      {
        status: 200,
        description: 'A page of heads, and the keys.',
        schema: Type.Object({ ...listSchema(headSchema).properties, keys: Type.Array(keySchema) }),
      },
    ],
    handle: async ({ query, services }) => await listedHeads(query, services),
  }),
  route({
    method: 'get',
    path: '/heads',
    operationId: 'getHeadsPage',
    tag,
    summary: 'Get the page of signed days',
    description: 'What `/v1/heads` lists, for people: HTML without scripts.',
    access: 'anyone',
    query: Type.Object({ after }),
    answers: [{ status: 200, description: 'The page.', contentType: 'text/html' }],
    handle: async ({ query, services }) =>
      new Reply(200, pageHeaders, headsPage(await listedHeads(query, services), query.after)),
  }),
  route({
    method: 'get',
    path: '/v1/heads/{date}',
    operationId: 'getHead',
    tag,
    summary: 'Get a signed day',
    description: 'The signed head of a day of this service, from 01:00 UTC of the next day on.',
    access: 'anyone',
    params: Type.Object({ date: Type.String({ pattern: datePattern }) }),
    answers: [{ status: 200, description: 'The head.', schema: headSchema }],
    errors: ['http_404'],
    handle: async ({ params, services }) => {
      const head = await services.operations.repositories.getDayHead({ day: dayOf(params.date) });
      if (head === undefined) throw notThere();
      return head;
    },
  }),
  route({
    method: 'get',
    path: '/v1/generation/proof',
    operationId: 'getGenerationProof',
    tag,
    summary: 'Get the proof of a request',
    description:
      'What a request was charged, and its way to the signed head of its day: `tokenhouse verify receipt` checks it without this service. None of its contents.',
    access: everyRole,
    query: Type.Object({ id: Type.String({ minLength: 1, maxLength: 200, description: 'As for `/v1/generation`.' }) }),
    answers: [{ status: 200, description: 'The proof.', schema: proofSchema }],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const { account, query, services } = call;
      const { repositories, now } = services.operations;
      const { ownerId } = visibleUsage(call);
      const found = await repositories.findUsage({ accountId: account.id, id: query.id, now: now() });
      const [row, other] = found;
      const key = row === undefined ? undefined : await repositories.getKey({ keyId: row.keyId });
      if (row === undefined || (ownerId !== undefined && key?.userId !== ownerId))
        throw notKept((await repositories.retentionOf({})).keptSince);
      if (other !== undefined) throw new ApiError('http_409', 'Several requests have this id: ask by its ledger id.');
      const proving = await repositories.proveUsage({ accountId: account.id, requestId: row.requestId });
      if (proving.state === 'proved') return proving.proof;
      throw new ApiError('http_409', whyNoProof(proving));
    },
  }),
];

/** A page of heads, and all keys. */
async function listedHeads(
  { limit: asked, after: date }: { readonly limit?: number | undefined; readonly after?: string | undefined },
  { operations: { repositories } }: Call['services'],
) {
  const limit = pageLimit(asked);
  const before = date === undefined ? undefined : dayOf(date);
  const heads = await repositories.listDayHeads({ before, limit: limit + 1 });
  const keys = (await repositories.listSigningKeys({})).map(shownKey);
  const data = heads.slice(0, limit);
  const more = heads.length > limit ? { has_more: true, next_after: data.at(-1)!.date } : { has_more: false };
  return { object: 'list', data, ...more, keys };
}

/** NaN for a date that is none, which no head has. */
function dayOf(date: string): number {
  const day = Date.parse(date);
  if (Number.isNaN(day)) throw notThere();
  return day;
}

const reasons = {
  never:
    'It was not signed: it is from before the first signed day, was recorded more than a week after its day was signed, or its account is erased.',
  changed: 'Its row is not as it was signed. The operator finds what differs with: tokenhouse ledger verify',
} as const;

/** Why a request has no proof. */
export const whyNoProof = (
  proving: { readonly state: 'later'; readonly at: number } | { readonly state: keyof typeof reasons },
): string =>
  proving.state === 'later'
    ? `Its day is not signed yet: there is a proof after ${new Date(proving.at).toISOString()}.`
    : reasons[proving.state];
