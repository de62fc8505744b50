import { closeSync, openSync, readSync } from 'node:fs';
import { resolve } from 'node:path';

import { whyNoProof } from '../account-api/routes/heads.ts';
import { accountMeant, olderThanKept, OperationError } from '../accounts/operation.ts';
import { dollars } from '../platform/dollars.ts';
import { checkProof, publishedIn, Unreadable } from '../store/proofs/check-proof.ts';
import type { Proof } from '../store/proofs/prove-row.ts';
import { counted } from './amount.ts';
import { CommandFailure } from './command-failure.ts';
import type { BareContext, Context } from './context.ts';
import { reading } from './database.ts';
import { exitCodes } from './failure.ts';
import { timeText } from './output.ts';

/** Prints the proof of a request as JSON, for a file. */
export async function showProof(
  context: Context,
  { account }: { readonly account?: string },
  id: string,
): Promise<number> {
  const proving = await reading(context, async ({ repositories, now }) => {
    const accountId = await accountMeant(account, repositories);
    const [row, other] = await repositories.findUsage({ accountId, id, now });
    if (row === undefined)
      throw new OperationError(`${accountId} has no request ${id}${await olderThanKept(repositories)}.`);
    if (other !== undefined)
      throw new OperationError(
        `Several requests have the id ${id}. Name one by its ledger id: tokenhouse explain ${id}`,
      );
    return await repositories.proveUsage({ accountId, requestId: row.requestId });
  });
  if (proving.state !== 'proved') throw new OperationError(whyNoProof(proving));
  context.print.result(proving.proof, [JSON.stringify(proving.proof, null, 2)]);
  return 0;
}

interface VerifyOptions {
  readonly key?: string;
  readonly head?: string;
}

/** `tokenhouse verify receipt`: without a configuration, a database or a service. */
export function verifyReceipt(
  { print, around }: BareContext,
  { key, head }: VerifyOptions,
  file = '',
): Promise<number> {
  const read = (path: string): string => textOf(path, resolve(around.directory, path));
  const published = (path: string | undefined, what: 'keys' | 'heads') => {
    if (path === undefined) return undefined;
    try {
      return publishedIn(read(path), what);
    } catch (error) {
      if (error instanceof Unreadable) throw noInput(path, `has no ${what}: ${error.message}`);
      throw error;
    }
  };
  const { proof, problem } = checkProof(read(file), { keys: published(key, 'keys'), heads: published(head, 'heads') });
  if (proof === undefined) {
    print.result({ ok: false, problem }, [`Nothing is proved: ${problem}.`]);
    return Promise.resolve(1);
  }
  print.result({ ok: true, request_id: proof.request['public_id'], key_id: proof.key.id }, [
    ...wordsOf(proof),
    key === undefined && head === undefined
      ? `Compare the key with the published one, or give it: --key FILE. Whoever made this file may have made the key ${proof.key.id}, too.`
      : 'It agrees with what you gave.',
  ]);
  return Promise.resolve(0);
}

/** Far more than a proof, or a page of heads, has. */
const fileBytesMax = 4_194_304;

/** The text of a file that anybody may have written. */
function textOf(shown: string, path: string): string {
  const bytes = Buffer.allocUnsafe(fileBytesMax + 1);
  let length = 0;
  try {
    const file = openSync(path, 'r');
    try {
      for (let read = 1; read > 0 && length < bytes.length; length += read)
        read = readSync(file, bytes, length, bytes.length - length, null);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw noInput(shown, `cannot be read: ${(error as Error).message}`);
  }
  if (length > fileBytesMax) throw noInput(shown, `has more than ${fileBytesMax} bytes, so it is none`);
  return bytes.toString('utf8', 0, length);
}

const noInput = (path: string, what: string): CommandFailure =>
  new CommandFailure({
    what: [`${path} ${what}.`],
    why: 'a proof is checked with nothing but the files that were given, so nothing was checked',
    repair: ['tokenhouse verify receipt --help'],
    exitCode: exitCodes.usage,
  });

/** A line stays a line, whatever is in the file: nothing in it can look like what this program says of it. */
const inLine = (text: string | null): string => String(text).replace(/\s+/g, ' ');

function wordsOf({ request, account_head: account, day_head: day, key }: Proof): readonly string[] {
  const at = (ms: string | null): string => timeText(Number(ms) / 1000);
  return [
    inLine(
      `Request ${request['public_id']} of ${request['account_id']} with key ${request['key_id']}, model ${request['model_id']}:`,
    ),
    `it ended at ${at(request['ended_at'])} (${inLine(request['ending'])}), had ${counted(Number(request['prompt_tokens']), 'prompt token')} and ${counted(Number(request['completion_tokens']), 'completion token')}, and was charged ${dollars(BigInt(request['cost']!))}.`,
    `It is one of ${counted(Number(account.requests), 'request')} of its account, for ${dollars(BigInt(account.cost))} in all, that were signed with the day ${day.date}.`,
    `Key ${key.id} signed that day at ${at(day.signed_at)}. Nothing of this was changed since: one other digit would not lead to what is signed.`,
    'A refund does not change a request: it is a movement of its own, in the receipt of the request and in the ledger.',
  ];
}
