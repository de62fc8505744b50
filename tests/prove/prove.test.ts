import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { after, describe, test } from 'node:test';

import { checkNames, type CheckName } from '../../src/prove/check-names.ts';
import { checksOf } from '../../src/prove/checks.ts';
import type { Scene } from '../../src/prove/measure.ts';
import { prove } from '../../src/prove/prove.ts';
import { ScriptedUpstream } from '../../src/prove/scripted-upstream.ts';
import { mainFile } from '../support/built.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/service.ts';
import { CommandFolder, jsonOf } from '../cli/command.ts';
import { FaultyGateway, type GatewayFault } from './faulty-gateway.ts';

/** Each fault, the check that must find it, and whether money is lost or made up by it. */
const faults: readonly (readonly [GatewayFault, CheckName | 'bytes' | 'all', 'lost' | 'madeUp' | undefined])[] = [
  ['charges twice', 'answers', 'madeUp'],
  ['forgets who left', 'leaving', 'lost'],
  ['charges the whole to who left', 'leaving', 'madeUp'],
  ['believes every usage', 'lying', 'madeUp'],
  ['charges only what is reported', 'lying', 'lost'],
  ['reads the budget before it spends it', 'budgets', undefined],
  ['counts to N + 1', 'rates', undefined],
  ['buffers streams', 'stalling', undefined],
  ['finishes what was cut', 'dropping', undefined],
  ['mixes answers', 'bytes', undefined],
  ['charges late', 'all', undefined],
  ['forgets at a kill', 'restarts', 'lost'],
];

async function proved(check: CheckName | 'bytes' | 'all', ...given: readonly GatewayFault[]) {
  const upstream = await ScriptedUpstream.start('prove', 0, '127.0.0.1');
  const gateway = await FaultyGateway.start(`http://127.0.0.1:${upstream.port}/v1/chat/completions`, ...given);
  const scene: Scene = {
    gateway: { url: gateway.url, model: 'prove' },
    keys: ['one', 'two'],
    upstream,
    prices: { input: 100_000_000n, output: 400_000_000n },
    adapter: gateway.adapter,
    admin: { url: '', key: '' },
    // A late charge comes 3 s after its answer: the wait at the end is longer, however fast the machine is.
    settleMs: given.includes('charges late') ? 4_000 : 1_500,
    requestsPerMinute: 5,
    budget: 1_000_000n,
    restart: () => gateway.restart(),
    foreign: [],
  };
  try {
    return await prove(scene, checksOf([check === 'bytes' || check === 'all' ? 'answers' : check]), () => {});
  } finally {
    gateway.close();
    await upstream.close();
  }
}

describe('prove finds what it is for', () => {
  for (const [fault, check, amount] of faults)
    test(`a gateway that ${fault}`, async () => {
      const { rows, isRight } = await proved(check, fault);
      const found = rows.filter((row) => row.check === check && row.verdict === 'wrong');
      assert.notEqual(found.length, 0, inspect(rows));
      assert.equal(isRight, false);
      if (amount !== undefined) assert.ok(found.some((row) => row[amount] > 0n));
    });
});

describe('tokenhouse prove, against the service itself', () => {
  const folder = new CommandFolder();
  const pidFile = join(folder.path, 'pid');
  after(() => {
    process.kill(Number(readFileSync(pidFile, 'utf8')), 'SIGKILL');
    folder.dispose();
  });

  test('every row is right', async () => {
    const [inference, account, upstream] = [await freePort(), await freePort(), await freePort()];
    folder.write(
      'tokenhouse.yaml',
      `server:
  inference: { host: 127.0.0.1, port: ${inference} }
  account: { host: 127.0.0.1, port: ${account}, console: false }
  # A machine that runs many tests at once is slow; that alone must not make it refuse work.
  limits: { shed_large_bodies_lag_seconds: 60, shed_new_work_lag_seconds: 60 }
accounts: { first_credit_cents: 10000 }
models:
  - id: prove
    context_length: 8192
    pricing: { input_dollars_per_million: 1, output_dollars_per_million: 4 }
    backends: [ { engine: openai, flavor: openai, url: "http://127.0.0.1:${upstream}/v1", model: prove } ]
`,
    );
    const restart = join(folder.path, 'restart.sh');
    writeFileSync(
      restart,
      `cd ${folder.path}; [ -f pid ] && kill -9 $(cat pid)
'${process.execPath}' '${mainFile}' serve --no-key >> service.log 2>&1 &
echo $! > pid
`,
    );
    spawnSync('sh', [restart]);
    await until(
      async () => (await fetch(`http://127.0.0.1:${inference}/healthz`).catch(() => undefined))?.ok === true,
      60_000,
    );
    const keyOf = async (...more: string[]): Promise<string> =>
      (jsonOf(await folder.run('keys', 'create', '--json', ...more)) as { readonly key: string }).key;
    const result = await folder.run(
      ...[
        'prove',
        `http://127.0.0.1:${inference}`,
        '--admin-url',
        `http://127.0.0.1:${account}`,
        '--price',
        '1/4',
        '--json',
      ],
      ...['--upstream-port', String(upstream), '--key', await keyOf(), '--second-key', await keyOf()],
      ...['--admin-key', await keyOf('--role', 'admin'), '--restart-command', `sh ${restart}`],
    );
    const { rows } = JSON.parse(result.stdout) as {
      readonly rows: readonly { readonly check: string; readonly verdict: string }[];
    };
    assert.deepEqual(
      rows.filter(({ verdict }) => verdict !== 'right'),
      [],
    );
    const seen = new Set(rows.map(({ check }) => check));
    assert.deepEqual(
      [...checkNames, 'reach', 'all', 'bytes'].filter((name) => !seen.has(name)),
      [],
    );
  });
});
