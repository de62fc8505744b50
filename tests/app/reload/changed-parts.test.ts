/** A file in which only one part has changed is another configuration, whichever part it is. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import type { Config } from '../../../src/config/config.ts';
import { readEnvironment } from '../../../src/config/environment.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { scriptSchema } from '../../../src/inference/engines/scripted/script-schema.ts';
import { createLog } from '../../../src/platform/log.ts';
import { Reloader } from '../../../src/app/reload.ts';
import { demo, models } from './scene.ts';

const parts = {
  server: 'server: { trusted_proxies: [ 192.0.2.1 ] }',
  accounts: 'accounts: { first_credit_cents: 7 }',
  plans: 'plans: [ { name: pro } ]',
  images: 'images: { fetch: false }',
  items: 'items: { keep_days: 3 }',
  files: 'files: { files_per_account_max: 7 }',
  mail: 'mail: { from: someone@example.org }',
  payments: 'payments: { topup_cents_min: 700 }',
  invoices: 'invoices: { prefix: "X-" }',
  webhooks: 'webhooks: { disable_after_days: 2 }',
  sign_in: 'sign_in: { sign_up: open }',
} as const;

for (const [part, line] of Object.entries(parts)) {
  test(`a change of ${part} alone comes into force, and the same file again changes nothing`, async (t) => {
    const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-reload-'));
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    const path = join(folder, 'tokenhouse.yaml');
    const environment = readEnvironment({ HOME: folder });
    const read = (): Config => loadConfig({ environment, path, directory: folder, scriptSchema });
    writeFileSync(path, `${models(demo())}\n`);
    const reloader = new Reloader(read(), {
      read,
      log: createLog({ write: () => true, once: () => {} }),
      discovery: {
        prepare: (config) => Promise.resolve({ config, commit: () => {}, abandon: () => {} }),
        expanded: (config) => config,
      },
      prepare: () => Promise.resolve({ commit: () => Promise.resolve(), abandon: () => Promise.resolve() }),
    });
    assert.equal((await reloader.reload()).kind, 'unchanged');
    writeFileSync(path, `${models(demo())}\n${line}\n`);
    const outcome = await reloader.reload();
    assert.equal(outcome.kind, 'reloaded', JSON.stringify(outcome));
    assert.ok('changes' in outcome && outcome.changes.length > 0, JSON.stringify(outcome));
    assert.equal((await reloader.reload()).kind, 'unchanged');
    await reloader.stop();
  });
}
