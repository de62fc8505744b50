/** What `launch` does to the files of clients and to keys, and that all of it can be undone. The clients themselves: tests/suites/launch. */
import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import fc from 'fast-check';

import type { KeyObject } from '../../../src/account-api/key-object.ts';
import { clients } from '../../../src/cli/launch/clients.ts';
import type { Client, ClientName } from '../../../src/cli/launch/clients.ts';
import {
  findFile,
  LaunchRecords,
  missingFolders,
  putBack,
  sha256,
  writeWhole,
} from '../../../src/cli/launch/record.ts';
import { commandProgram } from '../../../src/cli/command-line.ts';
import { temporaryFolder } from '../../store/fixture.ts';
import { runProcess } from '../../support/command.ts';
import type { CommandResult } from '../../support/command.ts';
import { scriptedModel, TestService } from '../../support/service.ts';

const service = new TestService({ config: scriptedModel('- say: [ { text: "Hello." } ]', { contextLength: 200_000 }) });
before(() => service.start());
after(() => service.dispose());

const names = Object.keys(clients) as ClientName[];
const withFile = names.filter((name) => (clients[name] as Client).file !== undefined);

const places = (home: string) => ({
  home,
  directory: home,
  platform: process.platform,
  variable: () => undefined,
});
const fileOf = (name: ClientName, home: string): string => (clients[name] as Client).file!.place(places(home));

/** In a folder of its own, for a user of its own. */
function launch(home: string, ...words: readonly string[]): Promise<CommandResult> {
  const config = join(service.folder, 'tokenhouse.yaml');
  return runProcess(home, ['launch', ...words, '--config', config], {
    HOME: home,
    XDG_DATA_HOME: '',
    XDG_CONFIG_HOME: '',
  });
}

const keyIn = (text: string): string => /tkh_[0-9A-Za-z]+/.exec(text)?.[0] ?? '';

async function statusWith(key: string): Promise<number> {
  const response = await fetch(`${service.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo', messages: [{ role: 'user', content: 'Hi' }] }),
  });
  await response.arrayBuffer();
  return response.status;
}

/** A file that somebody has written by hand, in the form of each client. */
const byHand: Readonly<Record<string, string>> = {
  json: '// mine\r\n{\r\n\t"theme": "dark", // really\r\n\t"env": { "A": "1" },\r\n}',
  toml: '# mine\nmodel = "other"   # for work\n\n[mcp_servers.a]\ncommand = "x"\n',
  yaml: '# mine\nname: a   # mine too\nmodels:\n- name: A\n  provider: ollama\n',
};
const formOf = (file: string): string => byHand[/\.(json|toml|yaml)$/.exec(file)![1]!]!;

test('the command line offers all clients', () => {
  const command = commandProgram().commands.find((one) => one.name() === 'launch')!;
  assert.deepEqual(command.registeredArguments[0]!.argChoices, names);
  assert.match(command.helpInformation(), /--budget <dollars> .*default: 5\.00/s);
});

for (const name of names)
  test(`${name}: set up with a key of its own, and undone byte for byte`, async (t) => {
    const home = temporaryFolder(t);
    const file = withFile.includes(name) ? fileOf(name, home) : undefined;
    const had = file === undefined ? undefined : formOf(file);
    if (file !== undefined) {
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, had!);
      chmodSync(file, 0o640);
    }
    const done = await launch(home, name, '--yes', '--budget', '2.50');
    assert.equal(done.code, 0, done.stderr);
    const { hasKey = false } = (clients[name] as Client).file ?? {};
    const key = keyIn(hasKey ? readFileSync(file!, 'utf8') : done.stderr);
    assert.equal(await statusWith(key), 200, 'the key works');
    if (hasKey) assert.ok(!done.stderr.includes(key), 'a key in a file is not shown too');
    if (file !== undefined) {
      assert.equal(statSync(file).mode & 0o777, hasKey ? 0o600 : 0o640);
      for (const comment of ['mine', 'really', 'for work', 'mine too'].filter((word) => had!.includes(word)))
        assert.ok(readFileSync(file, 'utf8').includes(comment), comment);
    }
    const undone = await launch(home, name, '--restore');
    assert.equal(undone.code, 0, undone.stderr);
    assert.equal(await statusWith(key), 401, 'the key is revoked');
    if (file !== undefined) {
      assert.equal(readFileSync(file, 'utf8'), had);
      assert.equal(statSync(file).mode & 0o777, 0o640);
      assert.deepEqual(
        readdirSync(dirname(file)).filter((one) => one.includes('.new')),
        [],
      );
    }
    assert.deepEqual(readdirSync(join(home, '.local/share/tokenhouse/launch')), []);
  });

test('the key has a budget, a name and a tag', async (t) => {
  const home = temporaryFolder(t);
  await launch(home, 'open-webui', '--yes', '--budget', '2.50', '--budget-per', 'week');
  const listed = await runProcess(service.folder, ['keys', 'list', '--json']);
  const key = (JSON.parse(listed.stdout) as readonly KeyObject[]).find(
    (one) => one.name === 'launch open-webui' && one.revoked_at === null,
  );
  assert.deepEqual([key?.tags, key?.limit_cents, key?.limit_reset], [['open-webui'], 250, 'weekly']);
  await launch(home, 'open-webui', '--restore');
});

test('what did not exist is gone afterwards, with the folders that were made for it', async (t) => {
  const home = temporaryFolder(t);
  assert.equal((await launch(home, 'opencode', '--yes')).code, 0);
  assert.ok(existsSync(fileOf('opencode', home)));
  assert.equal((await launch(home, 'opencode', '--restore')).code, 0);
  assert.ok(!existsSync(join(home, '.config')));
});

test('--print, no answer and a file that cannot be read change nothing', async (t) => {
  const home = temporaryFolder(t);
  const keys = async (): Promise<string> => (await runProcess(service.folder, ['keys', 'list', '--json'])).stdout;
  const before = await keys();
  const printed = await launch(home, 'claude', '--print');
  assert.equal(printed.code, 0);
  assert.match(printed.stdout, /# .*\.claude\/settings\.json\n\{/);
  assert.match(
    printed.stdout,
    new RegExp(`"ANTHROPIC_BASE_URL": "${service.url.replace('localhost', '(localhost|127.0.0.1)')}"`),
  );
  assert.match(printed.stdout, /tkh_…/);
  const unasked = await launch(home, 'claude');
  assert.equal(unasked.code, 64);
  assert.match(unasked.stderr, /\+ {4}"ANTHROPIC_AUTH_TOKEN": "tkh_…"/, 'the difference is shown all the same');
  assert.match(unasked.stderr, /repair {2}(npx )?tokenhouse launch claude --yes/);
  const file = fileOf('codex', home);
  mkdirSync(dirname(file));
  writeFileSync(file, 'model = "a\n');
  const broken = await launch(home, 'codex', '--yes');
  assert.equal(broken.code, 1);
  assert.match(broken.stderr, /config\.toml cannot be changed: line 1, column 9: a string has no end/);
  assert.equal(readFileSync(file, 'utf8'), 'model = "a\n');
  assert.equal(await keys(), before);
  assert.ok(!existsSync(join(home, '.claude')) && !existsSync(join(home, '.local')));
});

test('changes that were made meanwhile are not thrown away, not even by another launch', async (t) => {
  const home = temporaryFolder(t);
  const file = fileOf('claude', home);
  mkdirSync(dirname(file));
  writeFileSync(file, '{}');
  await launch(home, 'claude', '--yes');
  const first = keyIn(readFileSync(file, 'utf8'));
  const edited = readFileSync(file, 'utf8').replace('{', '{ "model": "mine",');
  writeFileSync(file, edited);
  const refused = await launch(home, 'claude', '--restore');
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /has been changed since; nothing was done/);
  assert.equal(readFileSync(file, 'utf8'), edited);
  assert.equal((await launch(home, 'claude', '--yes')).code, 0);
  const second = keyIn(readFileSync(file, 'utf8'));
  assert.deepEqual([await statusWith(first), await statusWith(second)], [401, 200], 'one key at a time');
  assert.match(readFileSync(file, 'utf8'), /"model": "mine"/);
  assert.equal((await launch(home, 'claude', '--restore')).code, 1);
  const forced = await launch(home, 'claude', '--restore', '--force');
  assert.equal(forced.code, 0, forced.stderr);
  assert.equal(readFileSync(file, 'utf8'), '{}');
  assert.match(readFileSync(join(home, '.local/share/tokenhouse/launch/claude.changed'), 'utf8'), /"model": "mine"/);
  assert.equal((await launch(home, 'claude', '--restore')).code, 1, 'nothing is left to be undone');
});

test('what a client notes in its own file is no reason to refuse', async (t) => {
  const home = temporaryFolder(t);
  const file = fileOf('cline', home);
  await launch(home, 'cline', '--yes');
  writeFileSync(file, readFileSync(file, 'utf8').replace('{', '{ "modes": {},'));
  const undone = await launch(home, 'cline', '--restore');
  assert.equal(undone.code, 0, undone.stderr);
  assert.match(undone.stderr, /The file as it was until now is in .*cline\.changed/);
  assert.ok(!existsSync(join(home, '.cline')));
});

test('a link stays a link', async (t) => {
  const home = temporaryFolder(t);
  const file = fileOf('claude', home);
  const real = join(home, 'dotfiles.json');
  mkdirSync(dirname(file));
  writeFileSync(real, '{ "a": 1 }');
  symlinkSync(real, file);
  await launch(home, 'claude', '--yes');
  assert.ok(lstatSync(file).isSymbolicLink());
  assert.match(readFileSync(real, 'utf8'), /ANTHROPIC_BASE_URL/);
  await launch(home, 'claude', '--restore');
  assert.equal(readFileSync(real, 'utf8'), '{ "a": 1 }');
  assert.ok(lstatSync(file).isSymbolicLink());
});

describe('a file', () => {
  test('of any bytes and mode is put back', (t) => {
    const folder = temporaryFolder(t);
    let count = 0;
    fc.assert(
      fc.property(
        fc.option(fc.uint8Array({ maxLength: 3000 })),
        fc.constantFrom(0o600, 0o644, 0o444, 0o755),
        (bytes, mode) => {
          const home = join(folder, String(count++));
          const file = join(home, 'deep', 'er', 'file');
          const records = new LaunchRecords(join(home, 'data'));
          if (bytes !== null) {
            mkdirSync(dirname(file), { recursive: true });
            writeWhole(file, Buffer.from(bytes), mode);
          } else mkdirSync(home);
          const found = findFile(file);
          const record = {
            path: found.path,
            mode: found.mode,
            folders: missingFolders(file),
            sha256Before: sha256(found.bytes ?? ''),
            sha256After: sha256('new'),
            isEdited: false,
          };
          records.write({ client: 'codex', keyId: 'k', service: 's', file: record }, found.bytes);
          writeWhole(file, Buffer.from('new'), 0o600);
          assert.deepEqual(records.read('codex')?.file, JSON.parse(JSON.stringify(record)));
          putBack(records.read('codex')!.file!, findFile(records.originalFile('codex')).bytes);
          assert.deepEqual(findFile(file).bytes, found.bytes);
          assert.equal(findFile(file).mode, found.mode);
          if (bytes === null) assert.ok(!existsSync(join(home, 'deep')));
        },
      ),
      { numRuns: 50 },
    );
  });
});
