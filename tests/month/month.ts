/**
 * A month of one account, beside two others, on any store: through the service, through the ledger, and through the jobs.
 * Reports, activity, costs, receipts, exports, invoices and the ledger say the same of it, to the microcent.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { noTax } from '../notifications/webhooks/receiver.ts';
import { exportRoutes } from '../../src/account-api/routes/export.ts';
import { invoiceRoutes } from '../../src/account-api/routes/invoices.ts';
import { usageRoutes } from '../../src/account-api/routes/usage.ts';
import { issueKey } from '../../src/accounts/key.ts';
import { Billing, freeBalancesOf } from '../../src/billing/billing.ts';
import type { Config } from '../../src/config/config.ts';
import type { AccountLedger, FreeBalances, UsageRow } from '../../src/store/ledger.ts';
import type { GenerationPage } from '../../src/store/repositories/generations.ts';
import type { Repositories } from '../../src/store/repositories/repositories.ts';
import { nextDay, startOfDay, startOfZoneMonth } from '../../src/platform/calendar/time-zone.ts';
import type { Difference } from '../../src/store/verify/difference.ts';
import { openHost } from '../account-api/host.ts';
import { mulberry32 } from '../support/random.ts';
import type { TestService } from '../support/service.ts';
import { uuid } from '../store/fixture.ts';
import { askThroughService, compareAsked } from './asked.ts';
import { play, setRates, type Stage, type Stop } from './play.ts';
import { requestsIn, sumOf, valuesOf, type Dimension, type Moved, type Played, type Span } from './played.ts';
import {
  allGroups,
  compareActivity,
  compareBuckets,
  compareGenerations,
  compareReceipts,
  compareReportExports,
  type Asker,
} from './reports.ts';
import { compareNumbers, compareStatements, compareWithReports } from './statements.ts';
import {
  batchIds,
  bystanders,
  dayMs,
  firstZone,
  hourMs,
  members,
  secondZone,
  statementSpan,
  timelineOf,
  year,
  zoneChangeAt,
} from './timeline.ts';

/** Where the month is played: a service on a new database, and the same database without it. */
export interface Place {
  /** Not started. */
  readonly service: TestService;
  /** After the service has stopped; closed by its caller. */
  open(free: FreeBalances): Promise<{ readonly ledger: AccountLedger; readonly repositories: Repositories }>;
  differences(): Promise<readonly Difference[]>;
}

export interface MonthSize {
  /** The account's requests in the month. */
  readonly requests: number;
  /** Sent through HTTP before it. */
  readonly asked: number;
  /** How hours and minutes are grouped; left out: in every way, as days are. */
  readonly fineGroups?: readonly (Dimension | undefined)[];
}

const config = {
  invoices: {
    seller: undefined,
    tax: { ...noTax, rate: { name: 'VAT', ratePerMille: 190 } },
    prefix: 'TH-',
    font: undefined,
  },
} as Partial<Config>;

export async function proveMonth(t: TestContext, place: Place, size: MonthSize): Promise<void> {
  const seed = Number(process.env['TOKENHOUSE_MONTH_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  t.diagnostic(`seed ${seed}`);
  try {
    await proveSeed(t, place, seed, size);
  } catch (error) {
    throw new Error(`with TOKENHOUSE_MONTH_SEED=${seed}: ${String(error)}`, { cause: error });
  }
}

async function proveSeed(t: TestContext, place: Place, seed: number, size: MonthSize): Promise<void> {
  const { requests, asked, fineGroups: fine = allGroups } = size;
  const random = mulberry32(seed);
  let [since, busySince] = [performance.now(), process.cpuUsage()];
  const done = (what: string): void => {
    const busy = process.cpuUsage(busySince);
    const seconds = [performance.now() - since, (busy.user + busy.system) / 1000].map((ms) => (ms / 1000).toFixed(1));
    t.diagnostic(`${what}: ${seconds[0]} s, ${seconds[1]} s of a processor in this process`);
    [since, busySince] = [performance.now(), process.cpuUsage()];
  };
  const reported = await askThroughService(place.service, asked);
  const { accountId } = place.service;
  done(`${asked} by HTTP`);

  // Before it is opened nobody asks.
  const free = freeBalancesOf(() => billing);
  const store = await place.open(free);
  const billing: Billing = new Billing({ ledger: store.ledger, newId: uuid, topupUrl: () => '', log: () => {} });
  const clock = { now: Date.now() };
  const host = await openHost(t, [...usageRoutes, ...exportRoutes, ...invoiceRoutes], () => clock.now, {
    config,
    store,
  });
  const { operations } = host.services;
  const { repositories } = operations;
  const keyIds: string[] = [];
  for (const userId of members) {
    const { row } = issueKey({ accountId, userId, name: 'of the month', secret: operations.secret, now: Date.now() });
    await repositories.createKey({ key: row, changeId: uuid() });
    keyIds.push(row.id);
  }
  const rows: UsageRow[] = [];
  for (let page: GenerationPage | undefined; page === undefined || page.next !== undefined;) {
    page = await repositories.listGenerations({
      accountId,
      limit: 500,
      ...(page === undefined ? {} : { before: page.next! }),
    });
    rows.push(...page.rows);
  }
  compareAsked(reported, rows);
  const moved: Moved[] = [];
  for (const id of bystanders) {
    await host.account(id);
    await operations.ledger.setCreditLimit(id, 10n ** 12n, Date.now(), uuid());
  }
  for (const transfer of await repositories.listTransfers({ accountId }))
    moved.push({
      accountId,
      at: transfer.at,
      kind: transfer.kind,
      microcents: transfer.creditAccount === accountId ? transfer.amountMicrocents : -transfer.amountMicrocents,
      ofRevenue: false,
    });
  const zoneOf = (id: string, timeZone: string) =>
    repositories.editAccount({ accountId: id, timeZone, at: Date.now(), changeId: uuid() });
  await zoneOf(accountId, firstZone);
  await zoneOf(bystanders[0], 'Pacific/Kiritimati');
  await zoneOf(bystanders[1], 'Europe/Berlin');

  const played: Played = { accountId, rows, moved, keyIds };
  const stage: Stage = { operations, billing, clock, accountId, keyIds, rows, moved };
  const asker = async (): Promise<Asker> => askerOf(host.url, await host.key(accountId, 'owner'));
  const addHours = async (): Promise<void> => void (await repositories.recomputeUsageHours({ now: clock.now }));
  const addDays = async (): Promise<void> => {
    while ((await repositories.recomputeUsageDays({})).isMore);
  };
  const close = async (): Promise<void> => {
    assert.ok(await host.jobs.run('invoices'));
  };

  const shortDay = dayOfChange(firstZone);
  const beforeChange = { from: statementSpan.from, to: startOfDay(firstZone, zoneChangeAt) };
  const month = { from: startOfZoneMonth(secondZone, year, 3), to: startOfZoneMonth(secondZone, year, 4) };
  const lastDay = { from: startOfDay(secondZone, month.to - 1), to: month.to };
  const stops: readonly Stop[] = [
    { at: statementSpan.from + 5 * dayMs, run: close },
    {
      at: zoneChangeAt,
      run: async () => {
        done('first half');
        // Rows alone, then with the hours that are added up, then in another zone, then with its days.
        await compareBuckets(await asker(), played, firstZone, beforeChange, '1d');
        await compareBuckets(await asker(), played, firstZone, shortDay, '1m', fine);
        await addHours();
        await compareBuckets(await asker(), played, firstZone, beforeChange, '1h', fine);
        await zoneOf(accountId, secondZone);
        await zoneOf(bystanders[0], 'Pacific/Pago_Pago');
        await compareBuckets(await asker(), played, secondZone, beforeChange, '1d');
        await addDays();
        await compareBuckets(await asker(), played, secondZone, beforeChange, '1d');
        await close();
        done('its reports');
      },
    },
    // The month has ended in Berlin, and is closed where clocks are different.
    {
      at: startOfZoneMonth('Europe/Berlin', year, 4) + hourMs / 2,
      run: () => zoneOf(bystanders[1], 'Australia/Lord_Howe').then(close),
    },
    { at: statementSpan.to + 6 * dayMs, run: () => addHours().then(close) },
    { at: Date.UTC(year, 5, 2, 12), run: () => addHours().then(addDays).then(close) },
  ];
  await play(stage, timelineOf(random, accountId, requests), await setRates(stage, [accountId, ...bystanders]), stops);
  const own = requestsIn(played, accountId, statementSpan);
  assert.equal(own.length, requests);
  done('second half');

  await compareBuckets(await asker(), played, secondZone, statementSpan, '1d');
  await compareBuckets(await asker(), played, secondZone, month, '1d');
  await compareBuckets(await asker(), played, secondZone, statementSpan, '1h', fine);
  await compareBuckets(await asker(), played, secondZone, lastDay, '1m', fine);
  const ask = await asker();
  await compareActivity(ask, played, secondZone, month);
  await compareReceipts(ask, played, sampleOf(random, own, 60));
  await compareReceipts(
    ask,
    played,
    sampleOf(
      random,
      moved.flatMap(({ request }) => (request?.accountId === accountId ? request : [])),
      30,
    ),
  );
  await compareSpend(repositories, played, month);
  done('reports');
  for (const format of ['csv', 'json'] as const)
    await compareGenerations(ask, played, secondZone, statementSpan, format);
  await compareReportExports(ask, played, statementSpan, '1h');
  await compareReportExports(ask, played, { from: Date.UTC(year - 1, 0, 1), to: Date.UTC(year, 5, 3) }, '1d');
  done('exports');

  const statements = await compareStatements(repositories, played, accountId);
  const [ofMonth] = statements.filter(({ periodStart }) => periodStart === statementSpan.from);
  assert.equal(ofMonth?.periodEnd, statementSpan.to);
  for (const statement of statements) await compareWithReports(ask, statement);
  for (const id of bystanders) assert.ok((await compareStatements(repositories, played, id)).length > 2);
  await compareNumbers(repositories);
  assert.deepEqual(await place.differences(), []);
  assert.deepEqual(host.failures, []);
  done('statements and ledger');
}

/** The first day of the month that has not 24 hours. */
function dayOfChange(zone: string): Span {
  for (let from = statementSpan.from; ; from = nextDay(zone, from)) {
    const to = nextDay(zone, from);
    if (to - from !== dayMs) return { from, to };
  }
}

function sampleOf(random: () => number, rows: readonly UsageRow[], count: number): readonly UsageRow[] {
  return Array.from({ length: count }, () => rows[Math.floor(random() * rows.length)]!);
}

async function compareSpend(repositories: Repositories, played: Played, span: Span): Promise<void> {
  const { accountId } = played;
  for (const name of batchIds) {
    const lines = played.rows.filter((row) => row.accountId === accountId && row.batchId === name);
    assert.ok(lines.length > 0);
    assert.equal(
      await repositories.batchCost({ accountId, name }),
      sumOf(lines, (row) => row.costMicrocents),
    );
  }
  const rows = requestsIn(played, accountId, span);
  for (const [by, id, dimension] of [
    ['account', undefined, undefined],
    ['key', played.keyIds[2]!, 'api_key_id'],
    ['user', 'ann', 'user_id'],
    ['tag', 'red', 'tag'],
  ] as const) {
    const theirs = rows.filter((row) => valuesOf(played, row, dimension).includes(id ?? null));
    const spent = await repositories.spendSince({ accountId, ...span, by, ...(id === undefined ? {} : { id }) });
    assert.equal(
      spent,
      sumOf(theirs, (row) => row.costMicrocents),
      by,
    );
  }
}

function askerOf(url: string, key: string): Asker {
  const get = async (path: string): Promise<Response> => {
    const answer = await fetch(url + path, { headers: { authorization: `Bearer ${key}` } });
    if (answer.status !== 200) assert.fail(`${path}: ${answer.status} ${await answer.text()}`);
    return answer;
  };
  return {
    json: async (path) => (await (await get(path)).json()) as never,
    stream: async function* (path) {
      const decoder = new TextDecoder();
      for await (const piece of (await get(path)).body!) yield decoder.decode(piece as Uint8Array, { stream: true });
    },
  };
}
