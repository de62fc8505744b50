import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';

import { CommandFolder } from './command.ts';

/** Exit code 64: what was typed cannot be meant; the answer says what can. 78: the configuration is wrong, and where. */
const folder = new CommandFolder();
after(() => folder.dispose());

describe('64, wrong usage', () => {
  for (const [args, said] of [
    [['frobnicate'], /unknown command 'frobnicate'/],
    [['key', 'list'], /unknown command 'key'[\s\S]*Did you mean keys\?/],
    [['keys', 'creat'], /unknown command 'creat'[\s\S]*Did you mean create\?/],
    [['usage', '--jsn'], /unknown option '--jsn'[\s\S]*Did you mean --json\?/],
    [['keys', 'revoke'], /missing required argument 'key-id'/],
    [['credits', 'grant'], /The amount is missing/],
    [['credits', 'grant', '--cents', 'much'], /use cents with at most six decimals/],
    [['credits', 'grant', '--cents=-5'], /use cents with at most six decimals/],
    [['credits', 'grant', '--cents', '0.0000001'], /use cents with at most six decimals/],
    [['credits', 'grant', '--cents', '0'], /more than 0/],
    [['credits', 'grant', '--cents', '99999999999999'], /at most 9000000000 cents/],
    [['usage', '--limit', '0'], /whole number from 1 to 1000/],
    [['keys', 'create', '--expires', '5'], /minutes, hours or days/],
    [['keys', 'create', '--expires', '0d'], /minutes, hours or days/],
    [['costs', '--month', '2027-13'], /a month such as 2027-06/],
    [['usage', 'too', 'many'], /too many arguments/],
    [['ledger'], /verify/],
    [[], /Usage: tokenhouse/],
  ] as const) {
    test(`tokenhouse ${args.join(' ')}`, async () => {
      const { code, stdout, stderr } = await folder.run(...args);
      assert.equal(code, 64, stderr);
      assert.match(stderr, said);
      assert.equal(stdout, '');
    });
  }
});

describe('0, help and version', () => {
  test('--help lists every command, on standard output', async () => {
    const { code, stdout } = await folder.run('--help');
    assert.equal(code, 0);
    for (const command of ['serve', 'keys', 'credits', 'usage', 'models', 'ledger'])
      assert.match(stdout, new RegExp(`^ +${command}`, 'm'));
  });

  test('the options of a command are in its help', async () => {
    const { code, stdout } = await folder.run('credits', 'grant', '--help');
    assert.equal(code, 0);
    for (const option of ['--config', '--json', '--cents', '--account', '--reason', '--idempotency-key']) {
      assert.ok(stdout.includes(option), option);
    }
  });

  test('--version is the version alone', async () => {
    assert.match((await folder.run('--version')).stdout, /^\d+\.\d+\.\d+\n$/);
  });
});

describe('78, a wrong configuration, with file, line and column', () => {
  const backends = 'backends: [ { engine: scripted, scripts: [ { say: [ { text: hi } ] } ] } ]';
  const pricing = 'pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }';
  const model = (lines: string) =>
    `models:\n  - id: demo\n    context_length: 8192\n    ${pricing}\n    ${backends}\n${lines}`;

  for (const [what, config, said] of [
    ['an unknown key', 'servr: {}\n', /^tokenhouse\.yaml:1:1: .*servr.*server/m],
    [
      'an unknown key inside',
      model('    contextlength: 1\n'),
      /^tokenhouse\.yaml:6:5: .*contextlength.*context_length/m,
    ],
    ['a wrong type', model('').replace('8192', 'large'), /^tokenhouse\.yaml:3:21: /m],
    ['broken YAML', 'models: [\n', /^tokenhouse\.yaml:\d+:\d+: /m],
    [
      'the same id twice',
      model(`  - id: DEMO\n    context_length: 16\n    ${pricing}\n    ${backends}\n`),
      /^tokenhouse\.yaml:6:9: the id "DEMO" is the same as "demo"/m,
    ],
    ['an unknown engine', model('').replace('engine: scripted', 'engine: magic'), /^tokenhouse\.yaml:5:\d+: .*magic/m],
    [
      'a key that is not in the environment',
      model('').replace(
        /backends.*/,
        'backends: [ { engine: openai, flavor: vllm, url: "http://a/v1", api_key_env: NO_SUCH_KEY } ]',
      ),
      /^tokenhouse\.yaml:5:\d+: .*NO_SUCH_KEY/m,
    ],
    ['another database', 'storage: postgres://user:hunter2@host/db\n', /^tokenhouse\.yaml:1:10: .*PostgreSQL/m],
  ] as const) {
    test(what, async () => {
      folder.write('tokenhouse.yaml', config);
      const { code, stderr, stdout } = await folder.run('serve');
      assert.equal(code, 78, stderr);
      assert.match(stderr, said);
      assert.doesNotMatch(stderr, /hunter2/);
      assert.equal(stdout, '');
    });
  }

  test('with --json the same words are JSON on standard output', async () => {
    folder.write('tokenhouse.yaml', 'servr: {}\n');
    const { code, stdout } = await folder.run('models', 'list', '--json');
    assert.equal(code, 78);
    assert.match((JSON.parse(stdout) as { error: string }).error, /^tokenhouse\.yaml:1:1: /);
  });

  test('a file that is not there', async () => {
    const { code, stderr } = await folder.run('usage', '--config', 'nothing.yaml');
    assert.equal(code, 78);
    assert.match(stderr, /nothing\.yaml: does not exist/);
  });

  test('a secret that can be guessed', async () => {
    const weak = new CommandFolder(model(''), { TOKENHOUSE_SECRET: 'short' });
    const { code, stderr } = await weak.run('serve');
    assert.equal(code, 78);
    assert.match(stderr, /TOKENHOUSE_SECRET.*openssl rand/);
    weak.dispose();
  });
});

describe('1, before the first start', () => {
  test('reading and writing say that there is nothing yet', async () => {
    const empty = new CommandFolder();
    for (const command of [['usage'], ['ledger', 'verify']]) {
      const { code, stderr } = await empty.run(...command);
      assert.equal(code, 1);
      assert.match(stderr, /There is no database at .*npm start/);
    }
    for (const command of [
      ['keys', 'create'],
      ['credits', 'grant', '--cents', '5'],
    ]) {
      const { code, stderr } = await empty.run(...command);
      assert.equal(code, 1, stderr);
      assert.match(stderr, /There is no account yet/);
    }
    empty.dispose();
  });
});
