/** What every schedule begins with: two accounts with credit, and keys with limits and budgets, in a database that was made once. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { copyFolder, Disk } from './disk.ts';
import { Host } from './host.ts';
import type { Scripts } from './machine.ts';
import { Scheduler } from './scheduler.ts';

export const worldStartMs = Date.UTC(2026, 10, 29, 10);

/** A model: microcents for a token, and what its service tiers are of that in hundredths. */
export interface Card {
  readonly input: bigint;
  readonly output: bigint;
  readonly tiers: Readonly<Record<string, bigint>>;
}

export const cards: Readonly<Record<string, Card>> = {
  m: { input: 5_000n, output: 20_000n, tiers: { priority: 200n, flex: 50n, batch: 50n } },
  f: { input: 3_000n, output: 10_000n, tiers: { flex: 80n, batch: 50n } },
  e: { input: 1_000n, output: 1_000n, tiers: { batch: 50n } },
};

/** A name that the first account has for `m`. */
export const ownName = 'ours';

const pricesOf = ({ input, output }: Card): string =>
  `{ input_cents_per_million: ${input}, output_cents_per_million: ${output} }`;
const backend = (name: string, host: number): string =>
  `      - { engine: openai, flavor: openai, name: ${name}, max_concurrency: 3, url: "http://10.0.0.${host}:8000/v1" }\n`;

export const config = `server:
  inference: { port: 0 }
  account: { port: 0, console: false }
  limits:
    first_token_timeout_seconds: 2
    stream_idle_timeout_seconds: 2
    request_timeout_seconds: 20
    prime_timeout_seconds: 1
accounts: { first_credit_cents: 60 }
payments: { provider: demo }
models:
  - id: m
    context_length: 8192
    pricing: ${pricesOf(cards['m']!)}
    tiers:
      priority: { price_multiple: 2, reserved_slots: 1 }
      flex: { price_multiple: 0.5, wait_seconds: 3 }
      batch: { price_multiple: 0.5 }
    fallback: [ f ]
    backends:
${backend('one', 1)}${backend('two', 2)}
  - id: f
    context_length: 8192
    pricing: ${pricesOf(cards['f']!)}
    tiers: { flex: { price_multiple: 0.8, wait_seconds: 3 } }
    backends:
${backend('three', 3)}
  - id: e
    context_length: 8192
    pricing: ${pricesOf(cards['e']!)}
    capabilities: { embeddings: { supported: true } }
    backends:
${backend('vectors', 1)}`;

export interface WorldKey {
  readonly key: string;
  readonly id: string;
  readonly account: string;
  /** Requests that it may send in a minute. */
  readonly perMinute?: number;
  /** Microcents that it may spend in all. */
  readonly budget?: bigint;
  /** Microcents that it may spend for `m`. */
  readonly modelBudget?: bigint;
}

export interface Template {
  readonly folder: string;
  readonly keys: readonly WorldKey[];
  /** The first account's key for files and batches. */
  readonly owner: WorldKey;
  /** Keys for management, by account. */
  readonly managers: ReadonlyMap<string, string>;
  /** A key that is revoked in the middle of some schedules, and the account that is deleted in some, with a key of its own. */
  readonly doomed: WorldKey;
  readonly leaving: WorldKey;
  /** Microcents of each account. */
  readonly credit: ReadonlyMap<string, bigint>;
}

const secondCredit = 25_000_000n;
const thirdCredit = 9_000_000n;

export async function makeTemplate(scripts: Scripts, folder: string): Promise<Template> {
  const scheduler = new Scheduler(1, worldStartMs);
  const disk = new Disk(scheduler, folder);
  mkdirSync(disk.folder, { recursive: true });
  const host = new Host({ scheduler, scripts, disk, dial: () => false }, config);
  const set = async (): Promise<Omit<Template, 'folder'>> => {
    await host.start();
    const operate = async (request: object): Promise<Made> => {
      const reply = await host.operate(request);
      if (reply?.answer === undefined) throw new Error(reply?.refused ?? reply?.failed ?? 'no answer');
      return reply.answer as Made;
    };
    const accountWith = async (name: string, microcents: bigint): Promise<string> => {
      const { accountId } = await operate({ kind: 'create_account', name });
      const grant = { kind: 'move_credit', movement: 'grant', idempotencyKey: name };
      await operate({ ...grant, accountId, microcents: String(microcents) });
      return accountId;
    };
    const first = host.firstAccount;
    const second = await accountWith('second', secondCredit);
    const third = await accountWith('third', thirdCredit);
    const keyOf = async (accountId: string, name: string, more: object = {}): Promise<WorldKey> => {
      const made = await operate({ kind: 'create_key', accountId, name, ...more });
      return { key: made.key, id: made.keyId, account: accountId };
    };
    const perMinute = 4;
    const [budget, modelBudget] = [900_000n, 500_000n];
    const owner = await keyOf(first, 'owner', { userId: 'owner' });
    const modelled = await keyOf(second, 'modelled');
    const ofModel = { microcents: String(modelBudget), per: 'total' };
    await operate({ kind: 'budget_key', keyId: modelled.id, model: 'm', budget: ofModel });
    const alias = { name: ownName, model: 'm', listed: true, answers: 'alias' };
    await operate({ kind: 'alias_account', accountId: first, aliases: [alias] });
    const doomed = await keyOf(second, 'doomed');
    const leaving = await keyOf(third, 'leaving');
    const keys: readonly WorldKey[] = [
      owner,
      { ...(await keyOf(first, 'limited', { limits: { requestsPerMinute: perMinute } })), perMinute },
      { ...(await keyOf(first, 'budget', { budget: { microcents: String(budget), per: 'total' } })), budget },
      await keyOf(second, 'plain'),
      {
        ...(await keyOf(second, 'single', { limits: { concurrencyMax: 1, requestsPerMinute: perMinute } })),
        perMinute,
      },
      { ...modelled, modelBudget },
      doomed,
      leaving,
    ];
    const managers = new Map<string, string>();
    for (const account of [first, second, third])
      managers.set(account, (await keyOf(account, 'manager', { role: 'owner' })).key);
    await host.stop();
    const credit = new Map([
      [first, 60_000_000n],
      [second, secondCredit],
      [third, thirdCredit],
    ]);
    return { keys, owner, managers, doomed, leaving, credit };
  };
  return { ...(await scheduler.run(set())), folder: disk.folder };
}

interface Made {
  readonly accountId: string;
  readonly keyId: string;
  readonly key: string;
}

/** A disk of its own for a schedule. */
export function copyOf(template: Template, scheduler: Scheduler, folder: string): Disk {
  const disk = new Disk(scheduler, folder);
  copyFolder(join(template.folder, 'data'), join(disk.folder, 'data'));
  return disk;
}
