/** What every schedule begins with: two accounts with credit, and keys with limits and budgets, in a database that was made once. */
import { cpSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { Disk } from './disk.ts';
import { Host } from './host.ts';
import type { Scripts } from './machine.ts';
import { Scheduler } from './scheduler.ts';

export const worldStartMs = Date.UTC(2026, 10, 29, 10);

/** Microcents for a token. */
export const inputPrice = 5_000n;
export const outputPrice = 20_000n;

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
    pricing: { input_cents_per_million: ${inputPrice}, output_cents_per_million: ${outputPrice} }
    backends:
      - { engine: openai, flavor: openai, name: one, url: "http://10.0.0.1:8000/v1" }
      - { engine: openai, flavor: openai, name: two, url: "http://10.0.0.2:8000/v1" }
`;

export interface WorldKey {
  readonly key: string;
  readonly id: string;
  readonly account: string;
  /** Requests that it may send in a minute. */
  readonly perMinute?: number;
  /** Microcents that it may spend in all. */
  readonly budget?: bigint;
}

export interface Template {
  readonly folder: string;
  readonly keys: readonly WorldKey[];
  /** The first account's key for files and batches, and its management key. */
  readonly owner: WorldKey;
  readonly manager: string;
  /** Microcents of each account. */
  readonly credit: ReadonlyMap<string, bigint>;
}

const secondCredit = 25_000_000n;

export async function makeTemplate(scripts: Scripts, folder: string): Promise<Template> {
  const scheduler = new Scheduler(1, worldStartMs);
  const disk = new Disk(scheduler, folder);
  mkdirSync(disk.folder, { recursive: true });
  const host = new Host({ scheduler, scripts, disk, dial: () => false }, config);
  const set = async (): Promise<Omit<Template, 'folder'>> => {
    await host.start();
    const { accountId: second } = (await host.operate({ kind: 'create_account', name: 'second' })) as Made;
    const grant = { kind: 'move_credit', movement: 'grant', idempotencyKey: 'second' };
    await host.operate({ ...grant, accountId: second, microcents: String(secondCredit) });
    const first = host.firstAccount;
    const keyOf = async (accountId: string, name: string, more: object = {}): Promise<WorldKey> => {
      const made = (await host.operate({ kind: 'create_key', accountId, name, ...more })) as Made;
      return { key: made.key, id: made.keyId, account: accountId };
    };
    const perMinute = 4;
    const budget = 900_000n;
    const owner = await keyOf(first, 'owner', { userId: 'owner' });
    const keys: readonly WorldKey[] = [
      owner,
      { ...(await keyOf(first, 'limited', { limits: { requestsPerMinute: perMinute } })), perMinute },
      { ...(await keyOf(first, 'budget', { budget: { microcents: String(budget), per: 'total' } })), budget },
      await keyOf(second, 'plain'),
      await keyOf(second, 'single', { limits: { concurrencyMax: 1 } }),
    ];
    const manager = (await keyOf(first, 'manager', { role: 'owner' })).key;
    await host.stop();
    return {
      keys,
      owner,
      manager,
      credit: new Map([
        [first, 60_000_000n],
        [second, secondCredit],
      ]),
    };
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
  mkdirSync(disk.folder, { recursive: true });
  cpSync(join(template.folder, 'data'), join(disk.folder, 'data'), {
    recursive: true,
    filter: (path) => !/\.(?:lock|sock)$/.test(path),
  });
  return disk;
}
