/** The configuration file, changed through the account API: what is shown before, what is written, and what is refused (decision 061). */
import assert from 'node:assert/strict';
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { withEntry, withBackendDisabled, withoutModel, withSettings } from '../../src/config/edit.ts';
import { ConfigEditor } from '../../src/config/editor.ts';
import { readEnvironment } from '../../src/config/environment.ts';
import { masked } from '../../src/config/masked.ts';
import { readConfig } from '../../src/config/read.ts';
import { configSchema } from '../../src/config/schema.ts';
import { TestService, until } from '../support/service.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../support/upstream.ts';
import { Visitor } from '../support/visitor.ts';

const written = `# my models
models:
  - id: first # the one that is there
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends:
      - { engine: scripted, name: main, scripts: [ { say: [ { text: hi } ] } ] }
      - { engine: scripted, name: spare, scripts: [ { say: [ { text: ho } ] } ] }
`;

const service = new TestService({ config: written });
const operator = new Visitor(service);
const file = (): string => readFileSync(join(service.folder, 'tokenhouse.yaml'), 'utf8');
let server: Upstream;
/** With what the harness adds. */
let original = '';
before(async () => {
  server = await Upstream.start((exchange) => answer(exchange), { isLookedAt: true });
  await service.start();
  await operator.becomeOwner();
  original = file();
});
after(async () => {
  await service.dispose();
  await server.close();
});

function answer(exchange: UpstreamExchange): void {
  const { path, headers } = exchange;
  if (headers.get('authorization') !== 'Bearer upstream-key') return exchange.json(401, {});
  if (path === '/v1/models')
    return exchange.json(200, {
      object: 'list',
      data: [{ id: 'Qwen/Qwen3-8B', owned_by: 'vllm', max_model_len: 8192 }],
    });
  if (path !== '/v1/chat/completions') return exchange.json(404, {});
  exchange.events();
  exchange.chunk(
    chatChunk({ content: 'Hello there' }) +
      chatChunk({}, 'stop') +
      usageChunk({ prompt_tokens: 3, completion_tokens: 2 }) +
      event('[DONE]'),
  );
  exchange.endChunks();
}

interface Shown {
  readonly status: number;
  readonly body: {
    readonly digest: string;
    readonly difference: readonly string[];
    readonly error?: { message: string };
  };
}

const preview = async (change: object): Promise<Shown> =>
  (await operator.ask('POST', '/v1/admin/configuration/preview', change)) as Shown;
const save = async (change: object, digest: string): Promise<Shown> =>
  (await operator.ask('POST', '/v1/admin/configuration/changes', { ...change, digest })) as Shown;

/** What the preview shows is written. */
async function changed(change: object): Promise<readonly string[]> {
  const shown = await preview(change);
  assert.equal(shown.status, 200, JSON.stringify(shown.body));
  const saved = await save(change, shown.body.digest);
  assert.equal(saved.status, 200, JSON.stringify(saved.body));
  assert.deepEqual(saved.body.difference, shown.body.difference);
  return shown.body.difference.filter((line) => /^[+-]/.test(line));
}

const models = async (): Promise<readonly Record<string, unknown>[]> => (await operator.get('/v1/admin/models')).data;
const statusOf = async (model: string): Promise<number> => {
  const asked = await service.chat({ model, messages: [{ role: 'user', content: 'hi' }] });
  await asked.arrayBuffer();
  return asked.status;
};

test('a server is asked, shown, and added as a draft; its key is written and never shown', async () => {
  const state = await operator.get('/v1/admin/configuration');
  assert.deepEqual([state.is_writable, state.problem], [true, null]);
  assert.equal(state.file, join(service.folder, 'tokenhouse.yaml'));

  const at = { url: `127.0.0.1:${server.port}`, api_key: 'upstream-key' };
  const wrongKey = await operator.ask('POST', '/v1/admin/servers/probe', { ...at, api_key: 'other' });
  assert.deepEqual([wrongKey.status, wrongKey.body.error.param], [400, 'url']);
  const first = await operator.ask('POST', '/v1/admin/servers/probe', at);
  assert.equal(first.status, 200, JSON.stringify(first.body));
  const { url, flavor, models: found, answer: none } = first.body;
  assert.deepEqual([url, flavor, none], [`http://127.0.0.1:${server.port}/v1`, 'vllm', null]);
  assert.deepEqual(found, [{ id: 'Qwen/Qwen3-8B', context_length: 8192 }]);
  const { body } = await operator.ask('POST', '/v1/admin/servers/probe', { ...at, model: 'Qwen/Qwen3-8B' });
  assert.deepEqual([body.answer.kind, body.answer.text, body.answer.tools], ['chat', 'Hello there', true]);

  const change = {
    add_server: {
      model: 'qwen',
      url,
      flavor,
      model_there: 'Qwen/Qwen3-8B',
      api_key: 'upstream-key',
      context_length: 8192,
      draft: true,
    },
  };
  const shown = await preview(change);
  assert.equal(file(), original, 'a preview writes nothing');
  assert.ok(shown.body.difference.includes('+        api_key: (secret)'), shown.body.difference.join('\n'));
  assert.ok(!JSON.stringify(shown.body).includes('upstream-key'));
  assert.equal((await save(change, '0'.repeat(64))).status, 409);
  assert.equal(file(), original, 'nor does a change that was not seen');
  await changed(change);
  assert.ok(file().includes('# my models\n') && file().includes('# the one that is there'), file());
  assert.match(file(), /api_key: upstream-key/);
  assert.match(file(), new RegExp(`dedicated_to:\\s+- ${service.accountId}`));
  assert.equal(await statusOf('qwen'), 200);

  const edited = await changed({
    edit_model: {
      model: 'qwen',
      set: {
        dedicated_to: null,
        pricing: { input_microcents_per_million: 10_000_000, output_microcents_per_million: 2_500_000 },
      },
    },
  });
  assert.ok(edited.includes('+      input_dollars_per_million: 0.1'), edited.join('\n'));
  assert.ok(edited.includes('+      output_dollars_per_million: 0.025'), edited.join('\n'));
  assert.ok(edited.every((line) => !line.includes('upstream-key')));

  const { data } = await operator.get('/v1/admin/audit');
  const entries = (data as { action: string; target: string }[]).filter(
    ({ action }) => action === 'configuration.change',
  );
  assert.deepEqual(
    entries.map(({ target }) => target),
    ['qwen', 'qwen'],
  );
  assert.ok(!JSON.stringify(data).includes('upstream-key'));
});

test('settings of a model are changed with the comments kept, and two editors do not overwrite each other', async () => {
  const set = {
    aliases: [{ name: 'oldest' }],
    description: 'The first.',
    max_output_tokens: 100,
    defaults: { temperature: 0.5 },
  };
  const seen = (await preview({ edit_model: { model: 'FIRST', set } })).body.digest;
  await changed({ edit_model: { model: 'first', set } });
  assert.equal((await save({ edit_model: { model: 'first', set: { description: 'Mine.' } } }, seen)).status, 409);
  assert.match(file(), /description: The first\./);
  const [row] = await models();
  assert.deepEqual(
    [row!['aliases'], row!['description'], row!['max_output_tokens'], row!['written_defaults']],
    [[{ name: 'oldest', listed: false, answers: 'model' }], 'The first.', 100, { temperature: 0.5 }],
  );
  assert.equal(await statusOf('oldest'), 200);
  const before = file();
  for (const set of [{ successor: 'nobody' }, { max_output_tokens: 100_000 }, { leads_to_successor: true }]) {
    const refused = await preview({ edit_model: { model: 'first', set } });
    assert.equal(refused.status, 400, JSON.stringify(set));
    assert.match(refused.body.error!.message, /models|tokenhouse\.yaml/);
  }
  assert.equal((await preview({ edit_model: { model: 'none', set } })).status, 404);
  assert.equal((await preview({})).status, 400);
  assert.equal(
    (await preview({ remove_model: { model: 'a' }, set_backend: { model: 'a', backend: 'b', disabled: true } })).status,
    400,
  );
  assert.equal(file(), before);
  await changed({
    edit_model: { model: 'first', set: { aliases: null, defaults: null, description: null, max_output_tokens: null } },
  });
  assert.ok(file().includes(written.split('\n').slice(1, 6).join('\n')), file());

  // As somebody who writes with another program meanwhile.
  const { digest } = (await preview({ edit_model: { model: 'first', set: { description: 'A' } } })).body;
  writeFileSync(join(service.folder, 'tokenhouse.yaml'), `${file()}# by hand\n`);
  assert.equal((await save({ edit_model: { model: 'first', set: { description: 'A' } } }, digest)).status, 409);
});

test('a backend is switched off and on, and a model is retired and removed; the command line does the same', async () => {
  chmodSync(join(service.folder, 'tokenhouse.yaml'), 0o600);
  const disable = (backend: string, disabled = true) => changed({ set_backend: { model: 'first', backend, disabled } });
  await disable('main');
  assert.deepEqual((await models())[0]!['written_backends'], [
    { name: 'spare', disabled: false },
    { name: 'main', disabled: true },
  ]);
  assert.equal(await statusOf('first'), 200);
  await disable('spare');
  assert.equal(await statusOf('first'), 503, 'nothing is left that could answer');
  assert.equal(statSync(join(service.folder, 'tokenhouse.yaml')).mode & 0o777, 0o600, 'its mode is kept');
  await disable('main', false);
  const enabled = await service.command('backends', 'enable', 'first', 'spare');
  assert.equal(enabled.code, 0, enabled.stderr);
  await until(async () => ((await models())[0]!['backends'] as string[]).length === 2);
  assert.ok(!file().includes('disabled'), file());

  const retired = { deprecation_date: '2020-01-01', successor: 'first', leads_to_successor: true };
  await changed({ edit_model: { model: 'qwen', set: retired } });
  const asked = await service.chat({ model: 'qwen', messages: [{ role: 'user', content: 'hi' }] });
  assert.equal(((await asked.json()) as { model: string }).model, 'first', 'its successor answers');
  const back = await service.command(
    'models',
    'set',
    'qwen',
    'deprecation_date=',
    'leads_to_successor=false',
    'description=By hand',
  );
  assert.equal(back.code, 0, back.stderr);
  await until(async () => (await models()).some(({ description }) => description === 'By hand'));
  assert.equal((await service.command('models', 'set', 'qwen', 'id=other')).code, 1);
  await changed({ remove_model: { model: 'qwen' } });
  assert.equal(await statusOf('qwen'), 404);
  const last = await preview({ remove_model: { model: 'first' } });
  assert.equal(last.status, 409, JSON.stringify(last.body));
});

test('a file that cannot be written is refused with words, and what the service refuses is put back', async () => {
  const environment = readEnvironment({});
  const read = (text: string) => readConfig(text, { directory: service.folder, environment });
  const outcomes = { kind: 'refused', version: 1, problems: [{ where: 'x', what: 'no memory' }] } as const;
  const options = { schema: configSchema(), read, reload: () => Promise.resolve(outcomes) };
  const nowhere = new ConfigEditor({ ...options, file: '/proc/version' });
  const add = (text: string): string => `${written}# ${text.length}\n`;
  // Its text is no configuration, which is why nothing is read before.
  await assert.rejects(
    new ConfigEditor({ ...options, read: () => read(''), file: '/proc/version' }).save(add, nowhere.digest),
    /cannot write \/proc\/version/,
  );
  const path = join(service.folder, 'other.yaml');
  writeFileSync(path, written);
  const editor = new ConfigEditor({ ...options, file: path });
  await assert.rejects(editor.save(add, editor.digest), /no memory/);
  assert.equal(readFileSync(path, 'utf8'), written);
});

test('a change gives no server a secret of the service, and changes nothing that it does not show', async () => {
  const server = { model: 'first', url: 'http://127.0.0.1:9/v1', flavor: 'vllm' };
  const refusals: readonly (readonly [change: object, status: number, param: string | undefined])[] = [
    [{ add_server: { ...server, api_key_env: 'TOKENHOUSE_SECRET' } }, 400, 'add_server.api_key_env'],
    [{ add_server: { ...server, api_key_env: 'tokenhouse_storage' } }, 400, 'add_server.api_key_env'],
    [{ add_server: { ...server, api_key_env: 'AWS_SECRET_ACCESS_KEY' } }, 400, 'add_server.api_key_env'],
    [{ add_server: { ...server, draft: true } }, 400, 'add_server.model'],
    [{ add_server: { ...server, dedicated_to: ['acct_1'] } }, 400, 'add_server.model'],
  ];
  for (const [change, status, param] of refusals) {
    const { status: got, body } = await operator.ask('POST', '/v1/admin/configuration/preview', change);
    assert.deepEqual([got, body.error?.param], [status, param], JSON.stringify([change, body]));
  }
  const at = { url: server.url, api_key_env: 'TOKENHOUSE_STRIPE_SECRET_KEY' };
  const probed = await operator.ask('POST', '/v1/admin/servers/probe', at);
  assert.deepEqual([probed.status, probed.body.error.param], [400, 'api_key_env'], JSON.stringify(probed.body));

  const audited = async () =>
    ((await operator.get('/v1/admin/audit')).data as { action: string }[]).filter(
      ({ action }) => action === 'configuration.change',
    ).length;
  const before = await audited();
  const set = { edit_model: { model: 'first', set: { description: 'B' } } };
  assert.equal((await save(set, 'a'.repeat(64))).status, 409);
  assert.equal(await audited(), before);
});

test('a server is tested promise by promise, one at a time, and only one that is there', async () => {
  const added = {
    model: 'tested',
    url: `http://127.0.0.1:${server.port}/v1`,
    flavor: 'vllm',
    model_there: 'Qwen/Qwen3-8B',
    api_key: 'upstream-key',
    context_length: 9_000,
    draft: true,
  };
  await changed({ add_server: added });
  const found = (await models()).find(({ id }) => id === 'tested') as { written_backends: { name: string }[] };
  const body = { model: 'tested', backend: found.written_backends[0]!.name };
  const ask = (of: object) => operator.ask('POST', '/v1/admin/backends/claims', of);
  const answers = await Promise.all([ask(body), ask(body)]);
  assert.deepEqual(answers.map(({ status }) => status).toSorted(), [200, 409]);
  const { data } = answers.find(({ status }) => status === 200)!.body;
  const stateOf = (claim: string) => data.find((one: { claim: string }) => one.claim === claim).state;
  // It says "Hello there" to everything, and that this was three tokens.
  assert.deepEqual(['usage', 'window', 'tools', 'json_schema'].map(stateOf), ['broken', 'broken', 'broken', 'broken']);
  for (const other of [
    { ...body, backend: 'nobody' },
    { ...body, model: 'nobody' },
    { model: 'first', backend: 'main' },
  ])
    assert.equal((await ask(other)).status, 404, JSON.stringify(other));
  await changed({ remove_model: { model: 'tested' } });
});

test('what entries share by an alias is changed by hand, and an address is shown without its password', () => {
  const shared = `models:
  - id: a
    pricing: &p { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: &b [ { engine: openai, flavor: vllm, url: http://x/v1 } ]
  - id: b
    pricing: *p
    backends: *b
  - id: c # https://u:hush@host/file?sig=hush
    backends: [ { engine: llama, sources: [ "https://u:hush@host/file.gguf?sig=hush&x=hush", file.gguf ] } ]
`;
  const price = { pricing: { input_cents_per_million: 1, output_cents_per_million: 1 } };
  for (const [what, text] of Object.entries({
    price: withSettings(shared, 'a', price),
    removal: withoutModel(shared, 'a'),
    backend: withEntry(shared, 'a', 'backends', { engine: 'openai' }),
    disabled: withBackendDisabled(shared, 'a', 0, true),
  }))
    assert.equal(text, undefined, what);
  assert.match(withSettings(shared, 'b', price) ?? '', /id: b\n {4}pricing:\n {6}input_cents_per_million: 1/);
  assert.match(withSettings(shared, 'a', { description: 'x' }) ?? '', /description: x/);
  const shown = masked(shared, configSchema());
  assert.ok(!shown.includes('hush') && shown.includes('host/file.gguf') && shown.includes(', file.gguf'), shown);
});

test("a file that the service makes is the service's alone", async () => {
  const path = join(service.folder, 'new.yaml');
  const read = (text: string) => readConfig(text, { directory: service.folder, environment: readEnvironment({}) });
  const reload = () => Promise.resolve({ kind: 'unchanged', version: 1 } as const);
  const editor = new ConfigEditor({ schema: configSchema(), read, reload, file: path });
  await editor.save(() => written, editor.digest);
  assert.equal(statSync(path).mode & 0o777, 0o600, 'it may hold the key of a server');
});
