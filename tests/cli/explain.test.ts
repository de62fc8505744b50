import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { errorTable } from '../../src/platform/errors.ts';
import { CommandFolder, jsonOf } from './command.ts';

/** The page of an error code in the terminal, from the table that the service answers with. */
const folder = new CommandFolder();
after(() => folder.dispose());

test('a code is explained, in words and as JSON', async () => {
  const { code, stdout } = await folder.run('explain', 'insufficient_credits');
  assert.equal(code, 0);
  const { meaning, remedy, status } = errorTable.insufficient_credits;
  for (const words of [meaning, remedy, `HTTP ${status}`, 'retry    ', 'charge   ']) assert.ok(stdout.includes(words));
  const value = jsonOf(await folder.run('explain', 'insufficient_credits', '--json')) as Record<string, unknown>;
  assert.deepEqual([value['code'], value['status'], value['charge']], ['insufficient_credits', 402, 'Nothing.']);
});

test('without a code all are listed', async () => {
  const all = jsonOf(await folder.run('explain', '--json')) as { code: string }[];
  assert.deepEqual(
    all.map(({ code }) => code),
    Object.keys(errorTable),
  );
});

test('an unknown code is wrong usage, and the near one is named', async () => {
  const { code, stderr } = await folder.run('explain', 'backend_timout');
  assert.equal(code, 64);
  assert.match(stderr, /nearest one is backend_timeout\n {2}repair {2}tokenhouse explain backend_timeout\n/);
});

test('where npm has started the program, the commands that are printed go through npx', async () => {
  const started = new CommandFolder(undefined, { npm_command: 'exec' });
  const { stderr } = await started.run('explain', 'backend_timout');
  assert.match(stderr, /^ {2}repair {2}npx tokenhouse explain backend_timeout$/m);
  started.dispose();
});
