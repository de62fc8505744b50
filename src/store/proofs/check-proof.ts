/** Checks a proof by itself: needs no database and no service (docs/receipts.md). Its bytes come from anywhere. */
import {
  accountHeadHash,
  isSignedWith,
  shownColumns,
  signingKeyId,
  usageHash,
  type AccountHead,
  type ShownUsage,
} from './forms.ts';
import { dayMs, lateDays } from './leaves.ts';
import { hex, isPathIn, rootOfPath, type PathStep } from './merkle.ts';
import type { Proof, SignedHead } from './prove-row.ts';
import type { PublicKey } from './signing-keys.ts';

/** `problem`: what is wrong; then nothing of it is proved. */
export type Checked =
  { readonly proof: Proof; readonly problem?: undefined } | { readonly proof?: undefined; readonly problem: string };

/** What somebody has from elsewhere, and the proof must agree with. */
export interface Known {
  readonly keys?: readonly PublicKey[] | undefined;
  readonly heads?: readonly SignedHead[] | undefined;
}

export function checkProof(text: string, known: Known = {}): Checked {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return { problem: 'it is not JSON' };
  }
  try {
    const proof = proofIn(parsed);
    const compact = JSON.stringify(proof);
    // Whatever is not checked below must not be there.
    const written = [compact, `${compact}\n`, `${JSON.stringify(proof, null, 2)}\n`];
    if (!written.includes(text)) return { problem: 'it has something in it that no proof has' };
    const problem = problemOf(proof, known);
    return problem === undefined ? { proof } : { problem };
  } catch (error) {
    if (error instanceof Unreadable) return { problem: error.message };
    throw error;
  }
}

function problemOf(proof: Proof, { keys, heads }: Known): string | undefined {
  const { request, account_head: account, day_head: day, key } = proof;
  const publicKey = Buffer.from(key.public_key, 'hex');
  if (signingKeyId(publicKey) !== key.id) return `key.public_key is not the key ${key.id}`;
  if (day.key_id !== key.id) return `day_head.key_id is not the key of the proof, ${key.id}`;
  if (request['account_id'] !== account.account_id) return 'request.account_id is not the account of account_head';
  if (account.date !== day.date) return 'account_head.date is not the day of day_head';
  const root = hex(rootOfPath(usageHash(request), proof.request_path));
  if (root !== account.root)
    return `request or request_path was changed: they lead to ${root}, and account_head.root is ${account.root}`;
  const dayRoot = hex(rootOfPath(accountHeadHash(account), proof.account_path));
  if (dayRoot !== day.root)
    return `account_head or account_path was changed: they lead to ${dayRoot}, and day_head.root is ${day.root}`;
  if (!isSignedWith(publicKey, day, Buffer.from(day.signature, 'hex')))
    return `day_head or its signature was changed: it is not what the key ${key.id} has signed`;
  if (!isPathIn(Number(account.requests), proof.request_path))
    return `request_path is of no tree of ${account.requests} requests, as many as account_head has`;
  const age = Date.parse(day.date) + dayMs - Number(request['ended_at']);
  if (!(age > 0 && age <= (lateDays + 1) * dayMs))
    return 'request.ended_at is not of the day, nor of the week before it';
  if (keys !== undefined && !keys.some((one) => one.public_key === key.public_key))
    return `the key ${key.id} is not among the given keys`;
  const given = heads?.filter((head) => head.date === day.date);
  if (given?.length === 0) return `the given heads have none of ${day.date}`;
  if (given?.some((head) => head.root !== day.root || head.previous !== day.previous) === true)
    return `day_head is not the given head of ${day.date}: two heads of one day were signed, or one is false`;
  return undefined;
}

/** The text is not what it should be. */
export class Unreadable extends Error {}

/** Columns of a request that are numbers; that they are what was signed is checked by their hashes. */
const numbers: readonly string[] = ['started_at', 'ended_at', 'prompt_tokens', 'completion_tokens', 'cost'];

const forms = {
  hash: /^[0-9a-f]{64}$/,
  signature: /^[0-9a-f]{128}$/,
  'key id': /^[0-9a-f]{16}$/,
  // Milliseconds that are a date, and amounts, are below 10^19.
  number: /^-?(?:0|[1-9]\d{0,18})$/,
  time: /^-?(?:0|[1-9]\d{0,14})$/,
  date: /^\d{4}-\d\d-\d\d$/,
  text: /^/,
  step: /^[LR]:[0-9a-f]{64}$/,
} as const;
type Form = keyof typeof forms;

/** Reads one object, and names what is missing or has another form. */
function reader(value: unknown, where: string) {
  if (typeof value !== 'object' || value === null) throw new Unreadable(`${where} is missing`);
  const fields = value as Readonly<Record<string, unknown>>;
  const string = (name: string, form: Form): string => {
    const found = fields[name];
    if (typeof found === 'string' && forms[form].test(found)) return found;
    throw new Unreadable(`${where}.${name} is not a ${form}`);
  };
  return {
    string,
    orNull: (name: string, form: Form): string | null => (fields[name] === null ? null : string(name, form)),
  };
}

/** At most as many as a tree of 2^64 leaves has levels. */
const stepsMax = 64;

function pathIn(value: unknown, where: string): readonly PathStep[] {
  if (!Array.isArray(value) || value.length > stepsMax) throw new Unreadable(`${where} is not a path`);
  return value.map((_, index) => reader(value, where).string(String(index), 'step'));
}

function accountHeadIn(value: unknown): AccountHead {
  const { string, orNull } = reader(value, 'account_head');
  return {
    account_id: string('account_id', 'text'),
    date: string('date', 'date'),
    requests: string('requests', 'number'),
    late: string('late', 'number'),
    cost: string('cost', 'number'),
    root: string('root', 'hash'),
    previous: orNull('previous', 'hash'),
  };
}

function dayHeadIn(value: unknown, where: string): SignedHead {
  const { string, orNull } = reader(value, where);
  return {
    date: string('date', 'date'),
    root: string('root', 'hash'),
    previous: orNull('previous', 'hash'),
    key_id: string('key_id', 'key id'),
    signed_at: string('signed_at', 'time'),
    signature: string('signature', 'signature'),
  };
}

function keyIn(value: unknown, where: string): PublicKey {
  const { string } = reader(value, where);
  return { id: string('id', 'key id'), public_key: string('public_key', 'hash') };
}

function proofIn(value: unknown): Proof {
  const { string } = reader(value, 'the proof');
  if (string('object', 'text') !== 'receipt_proof') throw new Unreadable('object is not receipt_proof');
  const fields = value as Readonly<Record<string, unknown>>;
  const request = reader(fields['request'], 'request');
  const shown = Object.fromEntries(
    shownColumns.map((column) => [
      column,
      numbers.includes(column) ? request.string(column, 'number') : request.orNull(column, 'text'),
    ]),
  );
  return {
    object: 'receipt_proof',
    request: { ...shown, details: request.string('details', 'hash') } as ShownUsage,
    request_path: pathIn(fields['request_path'], 'request_path'),
    account_head: accountHeadIn(fields['account_head']),
    account_path: pathIn(fields['account_path'], 'account_path'),
    day_head: dayHeadIn(fields['day_head'], 'day_head'),
    key: keyIn(fields['key'], 'key'),
  };
}

/** Keys or heads as the API lists them (`GET /v1/heads`), or one of them. Throws `Unreadable`, which says what is wrong. */
export function publishedIn(text: string, what: 'keys' | 'heads'): readonly (PublicKey & SignedHead)[] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Unreadable('it is not JSON');
  }
  const listed = what === 'keys' ? 'keys' : 'data';
  const list = (value as Readonly<Record<string, unknown>> | null)?.[listed] ?? [value];
  if (!Array.isArray(list)) throw new Unreadable(`${listed} is not a list`);
  const read = what === 'keys' ? keyIn : dayHeadIn;
  return list.map((one) => read(one, what) as PublicKey & SignedHead);
}
