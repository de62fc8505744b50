/** What holds after every schedule (docs/money.md): the ledger's own check, and what clients and servers know beside it. */
import type { Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import { toUsageRow } from '../../src/store/repositories/usage-rows.ts';
import { rowsOn } from '../../src/store/schema/codec.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';

import { promptTokens } from './backends.ts';
import type { Asked, Story } from './schedule.ts';
import { inputPrice, outputPrice } from './setup.ts';

export async function faultsOf(story: Story): Promise<readonly string[]> {
  const db = openReadOnly(story.disk.file);
  try {
    const { differences } = await verifyLedger(db, { owned: false });
    const rows = (await rowsOn(db).selectFrom('usage').selectAll().execute()).map(toUsageRow);
    const transfers = await rowsOn(db).selectFrom('transfer').select(['reference', 'kind']).execute();
    const refunded = new Set(transfers.filter(({ kind }) => kind === 'refund').map(({ reference }) => reference));
    return [
      ...differences.map((difference) => `ledger verify: ${JSON.stringify(difference, bigints)}`),
      ...(await balancesOf(db, story, rows)),
      ...story.asked.flatMap((one) => ofRequest(one, story, rows, refunded)),
      ...ofKeyed(story, rows, refunded),
      ...ofLimits(story, rows),
      ...ofBatches(story, rows),
    ];
  } finally {
    await db.destroy();
  }
}

const bigints = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);

const sumOf = (rows: readonly UsageRow[]): bigint => rows.reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);

/** What an account was given and has paid, less what its requests cost and were refunded, is what it has. */
async function balancesOf(db: Kysely<Database>, story: Story, rows: readonly UsageRow[]): Promise<readonly string[]> {
  const faults: string[] = [];
  const repositories = repositoriesOn(db);
  const { paidMicrocents, template } = story;
  for (const [account, given] of template.credit) {
    const transfers = await repositories.listTransfers({ accountId: account });
    const of = (kind: string): bigint =>
      transfers.filter((one) => one.kind === kind).reduce((sum, one) => sum + one.amountMicrocents, 0n);
    const balance = (await repositories.getAccount({ accountId: account }))!.balanceMicrocents;
    const spent = sumOf(rows.filter((row) => row.accountId === account));
    if (balance < 0n) faults.push(`the balance of ${account} is ${balance}`);
    const isFirst = account === template.owner.account;
    const bought = isFirst ? paidMicrocents : 0n;
    const known = given + bought - spent + of('refund');
    if (balance !== known) faults.push(`${account} has ${balance}: given ${given}, paid ${bought}, spent ${spent}`);
  }
  return faults;
}

/** One request, as its client, its servers and the ledger know it. */
function ofRequest(
  one: Asked,
  { backends, host }: Story,
  rows: readonly UsageRow[],
  refunded: ReadonlySet<string | null>,
): readonly string[] {
  const { publicId, seen, mark, tokensMax } = one;
  const own = rows.filter((row) => row.publicId === publicId);
  const [row] = own;
  const faults: string[] = [];
  const fault = (what: string): void => void faults.push(`${publicId} ${mark}: ${what}`);
  if (own.length > 1) fault(`${own.length} rows`);
  // What one request of a key gets may be the answer of another; `ofKeyed` has those.
  if (seen.kind === 'answer' && one.idempotencyKey === undefined) {
    const isCharged = row !== undefined && ['finished', 'credit'].includes(row.ending);
    const { prompt_tokens: prompt, completion_tokens: completion } = seen.usage;
    if (!isCharged) fault(`the client has its answer, and the ledger says ${row?.ending ?? 'nothing'}`);
    else if (row.promptTokens !== prompt || row.completionTokens !== completion) fault('shown is not what was charged');
  }
  if (seen.kind === 'error' && row !== undefined && row.costMicrocents > 0n && one.idempotencyKey === undefined) {
    // A charge that came to disk too late is paid back, unless the process that knew of it has died.
    const isPaidBack = refunded.has(Buffer.from(row.requestId).toString('hex'));
    const mayBeLost = host.deathsMs.some((diedMs) => diedMs > one.overMs);
    if (!isPaidBack && !mayBeLost)
      fault(`the client was told ${seen.code}, and pays ${row.costMicrocents} (${row.ending})`);
  }
  if (row === undefined) return faults;
  const attempts = backends.attempts.get(mark) ?? [];
  // What counts is what the servers wrote, whatever they say.
  const words = Math.max(0, ...attempts.map((attempt) => attempt.words));
  if (row.costMicrocents > 0n && attempts.length === 0) fault('charged, and no server was asked');
  if (row.costMicrocents === 0n) return faults;
  if (row.completionTokens > words) fault(`${row.completionTokens} tokens are charged of ${words} words`);
  if (row.promptTokens > 40) fault(`${row.promptTokens} tokens of the prompt are charged`);
  if (tokensMax !== undefined && row.completionTokens > tokensMax) fault(`more than ${tokensMax} tokens`);
  if (!row.counted && row.promptTokens !== promptTokens) fault(`${row.promptTokens} tokens of ${promptTokens}`);
  const isReported = attempts.some(({ usage }) => usage?.completion === row.completionTokens);
  if (row.ending === 'finished' && !row.counted && !isReported) fault('no server has reported what was charged');
  const list = BigInt(row.promptTokens) * inputPrice + BigInt(row.completionTokens) * outputPrice;
  if (list !== row.costMicrocents + row.unchargedMicrocents) fault(`costs ${row.costMicrocents}, not ${list}`);
  return faults;
}

/** For a day an idempotency key is one request: one of its runs made the answer, and it alone is paid. */
function ofKeyed(
  { asked, scheduler }: Story,
  rows: readonly UsageRow[],
  refunded: ReadonlySet<string | null>,
): readonly string[] {
  const keyed = new Map<string, Asked[]>();
  for (const one of asked) {
    if (one.idempotencyKey === undefined) continue;
    const key = `${one.by.account} ${one.idempotencyKey}`;
    keyed.set(key, [...(keyed.get(key) ?? []), one]);
  }
  return [...keyed].flatMap(([key, all]) => {
    const ids = new Set(all.map(({ publicId }) => publicId));
    const finished = rows.filter(
      (row) =>
        ids.has(row.publicId) &&
        ['finished', 'credit'].includes(row.ending) &&
        !refunded.has(Buffer.from(row.requestId).toString('hex')),
    );
    const isAnswered = all.some(({ seen }) => seen.kind === 'answer');
    if (scheduler.setMostMs >= dayMs) return [];
    const texts = new Set(all.flatMap(({ seen }) => (seen.kind === 'answer' ? [seen.text] : [])));
    return [
      ...(finished.length > 1 ? [`${key}: ${finished.length} answers are charged`] : []),
      ...(isAnswered && finished.length === 0 ? [`${key}: there is an answer, and no charge`] : []),
      ...(texts.size > 1 ? [`${key}: ${texts.size} different answers`] : []),
    ];
  });
}

const dayMs = 86_400_000;

/** Limits of keys, over the whole schedule. */
function ofLimits({ template, asked, host, scheduler }: Story, rows: readonly UsageRow[]): readonly string[] {
  return template.keys.flatMap((key) => {
    const own = rows.filter(({ keyId }) => keyId === key.id);
    const faults: string[] = [];
    if (key.budget !== undefined && sumOf(own) > key.budget) faults.push(`${key.id} spent more than its budget`);
    if (key.perMinute !== undefined && scheduler.nowMs < 60_000) {
      // A killed process may lose half a second of counting; a window may end in between, and a clock that is set begins another.
      const windows = 2 + host.deathsMs.length + scheduler.clockSets;
      const served = asked.filter(
        ({ by, seen, idempotencyKey }) => by === key && seen.kind === 'answer' && idempotencyKey === undefined,
      ).length;
      if (served > key.perMinute * windows) faults.push(`${key.id}: ${served} requests of ${key.perMinute} a minute`);
    }
    return faults;
  });
}

function ofBatches({ batches, scheduler }: Story, rows: readonly UsageRow[]): readonly string[] {
  return batches.flatMap(({ id, status, customIds, results }) => {
    const faults: string[] = [];
    // A clock that is a day ahead ends it.
    const isOver = status === 'completed' || (status === 'expired' && scheduler.setMostMs >= dayMs);
    if (!isOver) faults.push(`batch ${id} is ${status}`);
    const ids = results.map(({ custom_id: customId }) => customId).toSorted();
    if (String(ids) !== String(customIds.toSorted())) faults.push(`batch ${id} has results of ${String(ids)}`);
    const charged = rows.filter(({ batchId, costMicrocents }) => batchId === id && costMicrocents > 0n);
    const answered = results.filter(({ response }) => response?.status_code === 200);
    if (charged.length !== answered.length) faults.push(`${charged.length} charges for ${answered.length} lines`);
    for (const { response } of answered) {
      const row = charged.find(({ publicId }) => publicId === response!.request_id);
      if (row === undefined) faults.push(`line ${response!.request_id} is delivered and not charged`);
      else if (row.completionTokens !== response!.body.usage?.completion_tokens)
        faults.push('a line shows another usage');
    }
    return faults;
  });
}
