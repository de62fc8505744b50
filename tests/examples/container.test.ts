/** The recipe of a container in docs/operations.md: what it writes is a configuration, and what it copies is no secret. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { CommandFolder, jsonOf } from '../cli/command.ts';
import { inRepository } from '../support/repository.ts';

const recipe =
  /<!-- container -->\n```dockerfile\n([^]*?)\n```/.exec(
    readFileSync(inRepository('docs/operations.md'), 'utf8'),
  )?.[1] ?? '';
/** Each instruction on one line. */
const steps = recipe.replaceAll(/\\\n\s*/g, '').split('\n');
const written = /printf '%s\\n' (.*) > (\S+)$/.exec(steps.find((step) => step.includes('printf')) ?? '');
const configuration = [...(written?.[1] ?? '').matchAll(/'([^']*)'/g)].map(([, line]) => `${line}\n`).join('');

test('the configuration that it names is the one that it writes, and listens where a container is reached', async () => {
  assert.ok(steps.some((step) => step.startsWith('ENV ') && step.includes(`TOKENHOUSE_CONFIG=${written?.[2]} `)));
  const folder = new CommandFolder(configuration);
  try {
    const shown = jsonOf(await folder.run('config', 'show', '--json')) as {
      settings: { key: string; value: unknown; source: string }[];
    };
    const valueOf = (key: string): unknown => shown.settings.find((setting) => setting.key === key)?.value;
    assert.equal(valueOf('server.inference.host'), '0.0.0.0');
    assert.equal(valueOf('server.account.host'), '0.0.0.0');
    assert.equal(valueOf('storage'), 'sqlite:/data/tokenhouse.db');
    assert.equal((await folder.run('config', 'check')).code, 0);
  } finally {
    folder.dispose();
  }
});

test('what it copies leaves out the secret, the ledger and what belongs to the machine', () => {
  assert.ok(steps.includes('COPY . .'));
  const left = readFileSync(inRepository('.dockerignore'), 'utf8').split('\n');
  for (const pattern of [
    'data/',
    '**/secret',
    '**/*.db',
    '.env*',
    'tokenhouse.yaml',
    'node_modules/',
    'dist/',
    '.git/',
  ])
    assert.ok(left.includes(pattern), pattern);
  assert.ok(!left.some((pattern) => pattern.startsWith('!')), 'nothing is let in again');
});

test('its program is the one that the build writes', () => {
  const entry = steps.find((step) => step.startsWith('ENTRYPOINT ')) ?? '';
  const [command, ...args] = JSON.parse(entry.slice('ENTRYPOINT '.length)) as string[];
  assert.equal(command, 'node');
  assert.ok(args.includes('/opt/tokenhouse/dist/main.js'));
  assert.ok(steps.includes('WORKDIR /opt/tokenhouse') && steps.includes('RUN npm run build'));
});
