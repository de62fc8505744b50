/** What holds after every schedule (docs/money.md): the ledger's own check, and what clients and servers know beside it. */
import type { Kysely } from 'kysely';
import type { Database } from '../../src/store/database.ts';
import type { UsageRow } from '../../src/store/ledger.ts';
import { repositoriesOn } from '../../src/store/repositories/repositories.ts';
import { toUsageRow } from '../../src/store/repositories/usage-rows.ts';
import { rowsOn, type Row } from '../../src/store/schema/codec.ts';
import { openReadOnly } from '../../src/store/sqlite/dialect.ts';
import { verifyLedger } from '../../src/store/verify/verify.ts';

import { promptTokens } from './backends.ts';
import { vectorMark } from './dialects.ts';
import { cards } from './setup.ts';
import type { Asked, BatchAsked, Story } from './story.ts';

/** `tokenhouse ledger verify`: balances, rows, budgets, roll-ups, payments, and the chain of signed days. */
export async function differencesOf(db: Kysely<Database>): Promise<readonly string[]> {
  const { differences } = await verifyLedger(db, { owned: false });
  return differences.map((difference) => `ledger verify: ${JSON.stringify(difference, bigints)}`);
}

export async function faultsOf(story: Story): Promise<readonly string[]> {
  const db = openReadOnly(story.disk.file);
  try {
    const rows = (await rowsOn(db).selectFrom('usage').selectAll().execute()).map(toUsageRow);
    const transfers = await rowsOn(db).selectFrom('transfer').selectAll().execute();
    const known = { story, rows, refunds: refundsIn(transfers) };
    return [
      ...(await differencesOf(db)),
      ...(await balancesOf(db, story, rows)),
      ...story.asked.flatMap((one) => ofRequest(one, known)),
      ...rows.flatMap(ofPrices),
      ...ofKeyed(known),
      ...ofLimits(known),
      ...ofRefunds(known),
      ...ofEnded(known),
      ...story.batches.flatMap((batch) => ofBatch(batch, known)),
    ];
  } finally {
    await db.destroy();
  }
}

interface Known {
  readonly story: Story;
  readonly rows: readonly UsageRow[];
  /** What was paid back of a request, by its id in the ledger; `byOperator`: not by the service itself. */
  readonly refunds: ReadonlyMap<
    string,
    { readonly microcents: bigint; readonly times: number; readonly byOperator: boolean }
  >;
}

function refundsIn(transfers: readonly Row<'transfer'>[]): Known['refunds'] {
  const refunds = new Map<string, { microcents: bigint; times: number; byOperator: boolean }>();
  for (const { kind, idempotencyKey, amountMicrocents, by } of transfers) {
    if (kind !== 'refund' || !idempotencyKey.startsWith('refund:')) continue;
    const id = idempotencyKey.slice('refund:'.length, 'refund:'.length + 32);
    const before = refunds.get(id);
    refunds.set(id, {
      microcents: (before?.microcents ?? 0n) + amountMicrocents,
      times: (before?.times ?? 0) + 1,
      byOperator: by !== 'system',
    });
  }
  return refunds;
}

const refundOf = ({ refunds }: Known, { requestId }: UsageRow) => refunds.get(Buffer.from(requestId).toString('hex'));

/** The service has paid it back: its client was told that it costs nothing. */
const isPaidBack = (known: Known, row: UsageRow): boolean => refundOf(known, row)?.byOperator === false;

const bigints = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);

const sumOf = (rows: readonly UsageRow[]): bigint => rows.reduce((sum, { costMicrocents }) => sum + costMicrocents, 0n);

/** What an account was given and has paid, less what its requests cost and were refunded, is what it has. */
async function balancesOf(db: Kysely<Database>, story: Story, rows: readonly UsageRow[]): Promise<readonly string[]> {
  const faults: string[] = [];
  const repositories = repositoriesOn(db);
  const { paidMicrocents, template, granted, deletedMs } = story;
  for (const [account, given] of template.credit) {
    const transfers = await repositories.listTransfers({ accountId: account });
    const of = (kind: string): bigint =>
      transfers.filter((one) => one.kind === kind).reduce((sum, one) => sum + one.amountMicrocents, 0n);
    const balance = (await repositories.getAccount({ accountId: account }))!.balanceMicrocents;
    const spent = sumOf(rows.filter((row) => row.accountId === account));
    if (balance < 0n) faults.push(`the balance of ${account} is ${balance}`);
    const isFirst = account === template.owner.account;
    const bought = isFirst ? paidMicrocents : 0n;
    const isGone = account === template.leaving.account && deletedMs !== undefined;
    const forfeited = isGone ? of('expiry') : 0n;
    const gifts = granted.filter((one) => one.account === account).reduce((sum, one) => sum + one.microcents, 0n);
    const known = given + gifts + bought - spent + of('refund') - forfeited;
    if (isGone && balance !== 0n) faults.push(`${account} is deleted and has ${balance}`);
    if (balance !== known) faults.push(`${account} has ${balance}: given ${given}, paid ${bought}, spent ${spent}`);
  }
  return faults;
}

/** One request, as its client, its servers and the ledger know it. */
function ofRequest(one: Asked, known: Known): readonly string[] {
  const { backends } = known.story;
  const { publicId, mark, tokensMax } = one;
  const own = known.rows.filter((row) => row.publicId === publicId);
  const [row] = own;
  const faults: string[] = [];
  const fault = (what: string): void => void faults.push(`${publicId} ${mark}: ${what}`);
  if (own.length > 1) fault(`${own.length} rows`);
  for (const what of ofAnswer(one, row, known)) fault(what);
  if (row === undefined) return faults;
  if (row.keyId !== one.by.id || row.accountId !== one.by.account) fault(`it is charged to ${row.keyId}`);
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
  return faults;
}

/** What its client was given agrees with what it pays. */
function ofAnswer(one: Asked, row: UsageRow | undefined, known: Known): readonly string[] {
  const { seen, mark, idempotencyKey } = one;
  const { host } = known.story;
  if (seen.kind === 'answer') {
    const mine = one.api === 'embeddings' ? String(vectorMark(mark)) : mark;
    // No client ever gets what a server wrote for another.
    if (!(seen.text === mine || seen.text.startsWith(`${mine} `))) return [`its answer is ${seen.text.slice(0, 40)}`];
    // What one request of a key gets may be the answer of another; `ofKeyed` has those.
    if (idempotencyKey !== undefined) return [];
    if (row === undefined || !['finished', 'credit'].includes(row.ending))
      return [`the client has its answer, and the ledger says ${row?.ending ?? 'nothing'}`];
    const { prompt, completion } = seen.usage;
    if (row.promptTokens !== prompt || row.completionTokens !== completion) return ['shown is not what was charged'];
    if (seen.tier !== undefined && seen.tier !== (row.tier ?? 'default'))
      return [`the answer says ${seen.tier}, and ${row.tier} is charged`];
    return ofTier(one, row);
  }
  if (seen.kind === 'error' && row !== undefined && row.costMicrocents > 0n && idempotencyKey === undefined) {
    // A charge that came to disk too late is paid back, unless the process that knew of it has died, or an operator did it.
    const isKnown = refundOf(known, row) !== undefined || host.deathsMs.some((diedMs) => diedMs > one.overMs);
    const isCut = row.ending === 'revoked';
    if (!isKnown && !isCut) return [`the client was told ${seen.code}, and pays ${row.costMicrocents} (${row.ending})`];
  }
  return [];
}

/** A request is served in the tier that it asked for where its model has it, and never in a dearer one. */
function ofTier({ tier = 'default', api }: Asked, row: UsageRow): readonly string[] {
  const served = row.tier ?? 'default';
  const expected = cards[row.modelId]!.tiers[tier] === undefined ? 'default' : tier;
  if (api === 'embeddings' ? row.modelId !== 'e' : row.modelId === 'e') return [`${row.modelId} served it`];
  return served === expected ? [] : [`it asked for ${tier}, and ${served} of ${row.modelId} served it`];
}

/** Every row has the prices of the card of the model and the tier that served, and costs what these make. */
function ofPrices(row: UsageRow): readonly string[] {
  const card = cards[row.modelId]!;
  const hundredths = card.tiers[row.tier ?? 'default'] ?? 100n;
  // For a crashed request only its hold is known.
  if (row.ending === 'crashed') return row.costMicrocents === 0n ? [] : [`${row.publicId} has crashed and costs`];
  const list =
    ((BigInt(row.promptTokens) * card.input + BigInt(row.completionTokens) * card.output) * hundredths) / 100n;
  const whole = row.costMicrocents + row.unchargedMicrocents;
  return list === whole ? [] : [`${row.publicId} costs ${whole}, not ${list} (${row.modelId}, ${row.tier})`];
}

/** For a day an idempotency key is one request: one of its runs made the answer, and it alone is paid. */
function ofKeyed(known: Known): readonly string[] {
  const { asked, scheduler } = known.story;
  const keyed = new Map<string, Asked[]>();
  for (const one of asked) {
    if (one.idempotencyKey === undefined) continue;
    const key = `${one.by.account} ${one.idempotencyKey}`;
    keyed.set(key, [...(keyed.get(key) ?? []), one]);
  }
  return [...keyed].flatMap(([key, all]) => {
    const ids = new Set(all.map(({ publicId }) => publicId));
    const finished = known.rows.filter(
      (row) => ids.has(row.publicId) && ['finished', 'credit'].includes(row.ending) && !isPaidBack(known, row),
    );
    const isAnswered = all.some(({ seen }) => seen.kind === 'answer');
    if (scheduler.setMostMs >= dayMs) return [];
    // The head of each of its answers names the one that has the receipt.
    const named = all
      .filter(({ seen }) => seen.kind === 'answer')
      .map(({ answer }) => answer.headers.get('x-request-id'));
    const strangers = named.filter((id) => !finished.some(({ publicId }) => publicId === id));
    const texts = new Set(all.flatMap(({ seen }) => (seen.kind === 'answer' ? [seen.text] : [])));
    // While nothing fails, one run is enough, however often and when it is asked for.
    const whole = (known.story.backends.attempts.get(all[0]!.mark) ?? []).filter(({ isOver }) => isOver).length;
    const isCalm = known.story.disk.mishaps === 0 && known.story.host.deathsMs.length === 0;
    return [
      ...(isCalm && isAnswered && whole > 1 ? [`${key}: generated ${whole} times`] : []),
      ...(finished.length > 0 && strangers.length > 0 ? [`${key}: no receipt has ${String(strangers)}`] : []),
      ...(finished.length > 1 ? [`${key}: ${finished.length} answers are charged`] : []),
      ...(isAnswered && finished.length === 0 ? [`${key}: there is an answer, and no charge`] : []),
      ...(texts.size > 1 ? [`${key}: ${texts.size} different answers`] : []),
    ];
  });
}

const dayMs = 86_400_000;

/** Limits and budgets of keys, over the whole schedule. */
function ofLimits({ story, rows }: Known): readonly string[] {
  const { template, asked, host, scheduler } = story;
  return template.keys.flatMap((key) => {
    const own = rows.filter(({ keyId }) => keyId === key.id);
    const faults: string[] = [];
    if (key.budget !== undefined && sumOf(own) > key.budget) faults.push(`${key.id} spent more than its budget`);
    const ofModel = own.filter(({ modelId }) => modelId === 'm');
    if (key.modelBudget !== undefined && sumOf(ofModel) > key.modelBudget)
      faults.push(`${key.id} spent more than its budget for m`);
    if (key.perMinute !== undefined && scheduler.nowMs < 60_000) {
      // A killed process may lose half a second of counting; a window may end in between, and a clock that is set begins another.
      const windows = 2 + host.deathsMs.length + scheduler.clockSets;
      const mine = asked.filter(({ by }) => by === key);
      const served = mine.filter(
        ({ seen, idempotencyKey }) => seen.kind === 'answer' && idempotencyKey === undefined,
      ).length;
      if (served > key.perMinute * windows) faults.push(`${key.id}: ${served} requests of ${key.perMinute} a minute`);
      // A request that is refused takes nothing.
      const isLimit = ({ seen }: Asked): boolean => seen.kind === 'error' && seen.code === 'rate_limit_exceeded';
      const taken = mine.filter(({ answer }) => answer.status !== 429).length;
      if (mine.some(isLimit) && taken < key.perMinute) faults.push(`${key.id}: one is refused beside ${taken}`);
    }
    return faults;
  });
}

/** A request is paid back at most once, never more than it cost, and as its operator was told. */
function ofRefunds(known: Known): readonly string[] {
  const faults: string[] = [];
  for (const row of known.rows) {
    const refund = refundOf(known, row);
    if (refund === undefined) continue;
    // The service pays back what its client was told costs nothing: all of it.
    if (!refund.byOperator && refund.microcents !== row.costMicrocents)
      faults.push(`of ${row.publicId}, which cost ${row.costMicrocents}, ${refund.microcents} is paid back`);
    if (refund.times > 1) faults.push(`${row.publicId} is paid back ${refund.times} times`);
    if (refund.microcents > row.costMicrocents) faults.push(`of ${row.publicId} more is paid back than it cost`);
  }
  for (const { publicId, microcents, isDone } of known.story.refunded) {
    if (!isDone) continue;
    const row = known.rows.find((one) => one.publicId === publicId);
    const refund = row === undefined ? undefined : refundOf(known, row);
    if (refund?.microcents !== (microcents ?? row?.costMicrocents))
      faults.push(`the operator was told that ${publicId} is refunded: ${refund?.microcents ?? 'nothing'}`);
  }
  return faults;
}

/** What begins after a key was revoked, or its account was deleted, is refused. */
function ofEnded({ story, rows }: Known): readonly string[] {
  const { template, asked, revokedMs = Infinity, deletedMs = Infinity } = story;
  const endOf = new Map([
    [template.doomed, revokedMs],
    [template.leaving, deletedMs],
  ]);
  return asked
    .filter(({ by, begunMs }) => begunMs > (endOf.get(by) ?? Infinity))
    .filter(({ seen, publicId }) => seen.kind === 'answer' || rows.some((row) => row.publicId === publicId))
    .map(({ publicId, by }) => `${publicId} is served, and ${by.id} had ended`);
}

function ofBatch(batch: BatchAsked, known: Known): readonly string[] {
  const { id, status, customIds, results, isDisturbed } = batch;
  const { scheduler } = known.story;
  const faults: string[] = [];
  // A clock that is a day ahead ends it.
  const isLate = scheduler.setMostMs >= dayMs && ['expired', 'failed'].includes(status);
  const isEnded = isDisturbed && ['cancelled', 'failed'].includes(status);
  if (status !== 'completed' && !isLate && !isEnded) faults.push(`batch ${id} is ${status}`);
  const ids = results.map(({ custom_id: customId }) => customId).toSorted();
  if (new Set(ids).size !== ids.length) faults.push(`batch ${id} has results of ${String(ids)}`);
  if (!isEnded && !isLate && String(ids) !== String(customIds.toSorted()))
    faults.push(`batch ${id} has results of ${String(ids)}, not of ${String(customIds)}`);
  const charged = known.rows.filter(({ batchId, costMicrocents }) => batchId === id && costMicrocents > 0n);
  const answered = results.filter(({ response }) => response?.status_code === 200);
  if (charged.length !== answered.length) faults.push(`${charged.length} charges for ${answered.length} lines`);
  for (const { response } of answered) {
    const row = charged.find(({ publicId }) => publicId === response!.request_id);
    const shown = response!.body.usage as { readonly completion_tokens?: number; readonly output_tokens?: number };
    if (row === undefined) faults.push(`line ${response!.request_id} is delivered and not charged`);
    else if (row.completionTokens !== (shown.completion_tokens ?? shown.output_tokens ?? 0))
      faults.push('a line shows another usage');
    else if (row.tier !== 'batch') faults.push(`a line is charged as ${row.tier}`);
  }
  return faults;
}
