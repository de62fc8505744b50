/**
 * Zero data retention (specification §4.2.6, reliability part 4 and I10): of a request with `Service-ZDR: required` nothing is
 * kept anywhere, however it ends. Canaries go into every place of requests and answers; then everything that the service, its
 * engine's child and their crashes have written or still tell is searched for them.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { askForStatus } from '../../src/app/control/control-client.ts';
import { controlSocketPath } from '../../src/app/control/socket-path.ts';
import { canaryBody, canaryHeaders } from '../inference/http/canary-requests.ts';
import { Canaries, filesBelow, sightings } from '../inference/http/canary.ts';
import { askChat, chatRequest } from '../inference/http/chat.ts';
import { RawConnection, requestBytes } from '../inference/http/raw.ts';
import { TestService, scriptedModel, until } from '../support/service.ts';
import { writeTinyGguf } from '../support/tiny-gguf.ts';
import { Upstream, chatChunk, usageChunk } from '../support/upstream.ts';
import type { UpstreamHandler } from '../support/upstream.ts';
import { sha256Of } from '../support/folder.ts';

const outside = mkdtempSync(join(tmpdir(), 'tokenhouse-zdr-'));
const temporary = join(outside, 'tmp');
const canaries = new Canaries();
const said = {
  text: canaries.at('text of the backend'),
  reasoning: canaries.at('reasoning of the backend'),
  tool: canaries.at('tool call of the backend'),
  arguments: canaries.at('arguments of the backend'),
  error: canaries.at('error of the backend'),
  header: canaries.at('header of the backend'),
  id: canaries.at('id of the backend'),
};
const patienceMs = 120_000;

let upstream: Upstream;
/** A backend that retains what it likes: no request under zero data retention may reach it. */
let retaining: Upstream;
let service: TestService;

const backend: UpstreamHandler = (request) => {
  const headers = { 'x-request-id': said.header };
  if (request.method !== 'POST') return request.json(404, {}, headers);
  if (request.body.includes('<fail with 500>'))
    return request.json(500, { error: { message: `${said.error} ${request.body}`, code: said.error } }, headers);
  if (request.body.includes('<fail with 400>'))
    return request.json(400, { error: { message: `${said.error} ${request.body}`, code: said.error } }, headers);
  request.events(headers);
  const id = { id: said.id, model: said.id };
  request.chunk(chatChunk({ role: 'assistant', content: '', reasoning_content: said.reasoning }, null, id));
  request.chunk(chatChunk({ content: said.text }, null, id));
  if (request.body.includes('<hang>')) return;
  if (request.body.includes('<cut>')) return request.reset();
  if (request.body.includes('<nonsense>')) return request.chunk(`data: {"broken": "${said.error}\n\n`);
  if (request.body.includes('<call>')) {
    const call = { index: 0, id: said.id, type: 'function', function: { name: said.tool, arguments: said.arguments } };
    request.chunk(chatChunk({ tool_calls: [call] }, null, id));
  }
  request.chunk(chatChunk({}, 'stop', id));
  request.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }));
  request.chunk('data: [DONE]\n\n');
  request.endChunks();
};

before(async () => {
  upstream = await Upstream.start(backend);
  retaining = await Upstream.start((request) => request.json(500, { error: { message: 'no' } }));
  const model = join(outside, 'tiny.gguf');
  const words = Array.from({ length: 1500 }, (_, index) => ` w${index}`);
  writeTinyGguf(model, { script: [['assistant\n', ...words, '<|im_end|>']], contextLength: 4096 });
  mkdirSync(temporary);
  const pricing = 'pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }';
  service = new TestService({
    environment: { TMPDIR: temporary, TOKENHOUSE_MODEL_DIR: join(outside, 'models') },
    // As on a machine whose administrator wants to see crashes: a core dump has everything that was in memory.
    within: ['sh', '-c', 'ulimit -c unlimited; exec "$@"', 'sh'],
    config: `${scriptedModel('- say: [ { text: "hello" } ]').replace('- engine: scripted', '- engine: scripted\n        zdr: true')}
  - id: far
    context_length: 8192
    ${pricing}
    backends:
      - { name: retains, engine: openai, flavor: openai, url: "${retaining.url}" }
      - { name: forgets, engine: openai, flavor: openai, url: "${upstream.url}", zdr: true }
  - id: near
    context_length: 4096
    ${pricing}
    backends:
      - engine: llama
        sources: [ "file:${model}" ]
        sha256: ${sha256Of(model)}
        slots: 1
        zdr: true
  - id: keeps
    context_length: 4096
    ${pricing}
    backends: [ { engine: scripted, scripts: [ { say: [ { text: "hello" } ] } ] } ]`,
  });
  await service.start();
  await until(() => childOf('near') !== undefined, patienceMs);
});
after(async () => {
  await service.dispose();
  await upstream.close();
  await retaining.close();
  rmSync(outside, { recursive: true, force: true });
});

/** The process id of the child that was ready last. */
function childOf(model: string): number | undefined {
  const ready = (line: Readonly<Record<string, unknown>>): boolean =>
    line['event'] === 'llama_ready' && line['model'] === model;
  return service.log.findLast(ready)?.['pid'] as number | undefined;
}

type Header = readonly [string, string];

/** Everything that may be sent, the client's own request id too: it is echoed, but not kept. */
const zdrHeaders = (of: string): readonly Header[] => [
  ['Service-ZDR', 'required'],
  ['X-Request-Id', canaries.at(`request id, ${of}`)],
  ...canaryHeaders(canaries, of),
];
const body = (model: string, stream: boolean, last: string): Record<string, unknown> =>
  canaryBody(canaries, model, stream, last);
const ask = (model: string, stream: boolean, last: string, more: object = {}) =>
  askChat(service, { ...body(model, stream, last), ...more }, zdrHeaders(`${model}, ${last}, ${stream}`));

/** A connection on which an answer is under way. */
async function underWay(model: string, last: string, more: object = {}): Promise<RawConnection> {
  const connection = await RawConnection.open(service.url);
  const request = { ...body(model, true, last), ...more };
  connection.write(requestBytes(service.url, chatRequest(service, request, zdrHeaders(`${model}, ${last}`))));
  await connection.waitFor(() => connection.received.includes('"content":"'));
  return connection;
}

/** Ids of answers, without the prefix. */
const completions: string[] = [];

const restart = async (): Promise<void> => {
  await service.start();
  await until(() => childOf('near') !== undefined, patienceMs);
};

describe('requests under zero data retention', () => {
  for (const model of ['demo', 'far', 'near']) {
    for (const stream of [false, true]) {
      test(`${model}, ${stream ? 'streamed' : 'whole'}, answered; the request id is echoed`, async () => {
        const answer = await ask(model, stream, 'answer');
        assert.equal(answer.status, 200, answer.body);
        assert.match(answer.headers['x-request-id'] ?? '', /^client_[0-9a-f]{32}$/);
        completions.push(/chatcmpl-([0-9a-f]{32})/.exec(answer.body)?.[1] ?? '');
      });
    }
  }

  test('answered with a tool call, and with schemas', async () => {
    const at = (place: string): string => canaries.at(`${place}, offered`);
    const parameters = {
      type: 'object',
      description: at('description of a schema'),
      properties: { [at('schema key')]: { type: 'string', enum: [at('schema value')] } },
    };
    const tool = { type: 'function', function: { name: at('tool'), description: at('description'), parameters } };
    const format = { type: 'json_schema', json_schema: { name: at('schema'), schema: parameters } };
    for (const stream of [false, true]) {
      for (const model of ['demo', 'far', 'near']) {
        for (const more of [{ tools: [tool] }, { response_format: format }, { regex: `${at('regex')}|b` }]) {
          const answer = await ask(model, stream, 'call', more);
          // Whether a model can is the business of its card; whatever is answered, nothing may be kept.
          // This backend says the same whatever it is bound to, and is not asked for it again.
          assert.ok([200, 400, ...(model === 'far' ? [502] : [])].includes(answer.status), answer.body);
        }
      }
    }
  });

  test('failed before the first token, in the middle, and by nonsense', async () => {
    for (const last of ['fail with 500', 'fail with 400', 'cut', 'nonsense']) {
      for (const stream of [true, false]) {
        const answer = await ask('far', stream, last);
        assert.match(answer.body, /"error":/);
        assert.ok(!answer.body.includes(said.error), answer.body);
      }
    }
  });

  test('left by the client in the middle', async () => {
    for (const model of ['far', 'near']) {
      const connection = await underWay(model, 'hang', { max_tokens: 1000, stop: [] });
      connection.close();
    }
    const left = async () => (await service.usage()).requests.filter(({ ending }) => ending === 'client_left').length;
    await until(async () => (await left()) === 2, patienceMs);
  });

  test('refused for each kind of reason', async () => {
    const at = (place: string): string => canaries.at(`${place}, refused`);
    const user = [{ role: 'user', content: at('text') }];
    const tool = {
      type: 'function',
      function: { name: at('tool'), parameters: { type: 'string', title: at('title') } },
    };
    const bodies: readonly (readonly [number, unknown])[] = [
      [404, { model: at('model'), messages: user }],
      [400, { model: 'keeps', messages: user }],
      [400, `{"model":"demo","messages":[{"role":"user","content":"${at('cut JSON')}`],
      [400, { [at('key without a model')]: at('value') }],
      [422, { model: 'demo', messages: [{ role: at('role'), content: at('text') }] }],
      [422, { model: 'demo', messages: user, temperature: at('temperature') }],
      [400, { model: 'demo', messages: user, reasoning_effort: at('effort') }],
      [400, { model: 'demo', messages: user, regex: `(${at('broken regex')}` }],
      [400, { model: 'demo', messages: user, response_format: { type: at('format') } }],
      [400, { model: 'demo', messages: user, response_format: { type: 'grammar', grammar: `root ::= ${at('rule')}` } }],
      [400, { model: 'demo', messages: user, tools: [tool] }],
      [
        400,
        { model: 'demo', messages: [...user, { role: 'tool', tool_call_id: at('orphan'), content: at('result') }] },
      ],
      [400, { model: 'near', messages: [{ role: 'user', content: `${at('long text')} `.repeat(3000) }] }],
    ];
    for (const [status, refused] of bodies) {
      const answer = await askChat(service, refused, zdrHeaders(`refused with ${status}`));
      assert.equal(answer.status, status, `${answer.body} for ${JSON.stringify(refused)}`);
    }
    const large: readonly Header[] = [...zdrHeaders('too large'), ['Content-Length', '60000000']];
    const connection = await RawConnection.open(service.url);
    connection.write(requestBytes(service.url, chatRequest(service, at('too large'), large)));
    assert.equal((await connection.answer()).status, 413);
    connection.close();
    // What no handler ever sees is logged too.
    const malformed = await RawConnection.open(service.url);
    malformed.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nhost: b\r\nservice-zdr: required\r\nx-request-id: ${at('id of a malformed one')}\r\ncontent-length: 2\r\n\r\n{}`,
    );
    assert.equal((await malformed.answer()).status, 400);
    malformed.close();
  });

  test('that do not ask for it in the right words are refused, and forgotten too (fail closed)', async () => {
    for (const value of ['Required', 'REQUIRED', 'true', '', 'required, required', 'no']) {
      const more: readonly Header[] = [
        ['Service-ZDR', value],
        ['X-Request-Id', canaries.at('id of a wrong word')],
      ];
      const answer = await askChat(service, body('demo', false, 'wrong word'), more);
      assert.equal(answer.status, 400, value);
      assert.match(answer.body, /"code":"invalid_zdr_header"/);
    }
    for (const more of [
      [
        ['Service-ZDR', 'required'],
        ['Service-ZDR', 'required'],
      ],
      [['Service_ZDR', 'required']],
    ] as const satisfies readonly (readonly Header[])[]) {
      assert.equal((await askChat(service, body('demo', false, 'twice'), more)).status, 400);
    }
    const many: readonly Header[] = Array.from({ length: 1000 }, (_, index) => [`X-${index}`, 'x'] as const);
    const hidden: readonly Header[] = [...many, ['Service-ZDR', 'required']];
    const answer = await askChat(service, body('demo', false, 'behind a thousand headers'), hidden);
    assert.equal(answer.status, 431, 'a header that would be lost is refused');
  });

  for (const signal of ['SIGKILL', 'SIGABRT'] as const) {
    test(`while the engine's child ends by ${signal}`, async () => {
      const connection = await underWay('near', 'hang', { max_tokens: 1000, stop: [] });
      const before = childOf('near');
      assert.ok(before !== undefined);
      process.kill(before, signal);
      const answer = await connection.answer();
      connection.close();
      assert.match(answer.body, /"code":"backend_/);
      await until(() => childOf('near') !== before, patienceMs);
    });

    test(`while the service ends by ${signal}, and is started again`, async () => {
      const connections = [
        await underWay('far', 'hang'),
        await underWay('near', 'hang', { max_tokens: 1000, stop: [] }),
      ];
      await service.stop(signal);
      for (const connection of connections) connection.close();
      await restart();
      await service.verify();
    });
  }
});

describe('no later request', () => {
  const prompt = 'some words that would be worth keeping in a cache, and a few more of them '.repeat(3);
  const cachedOf = async (headers: readonly Header[], content: string): Promise<number> => {
    const request = { model: 'near', messages: [{ role: 'user', content }], max_tokens: 1 };
    const answer = await askChat(service, request, headers);
    assert.equal(answer.status, 200, answer.body);
    const { usage } = answer.json() as { usage?: { prompt_tokens_details: { cached_tokens: number } } };
    return usage?.prompt_tokens_details.cached_tokens ?? -1;
  };
  const zdr: readonly Header[] = [['Service-ZDR', 'required']];

  test('finds a prompt in the cache of the engine, which finds others', async () => {
    assert.equal(await cachedOf([], `A ${prompt}`), 0);
    assert.ok((await cachedOf([], `A ${prompt}`)) > 50, 'the same prompt without zero data retention is found');
    assert.equal(await cachedOf(zdr, `A ${prompt}`), 0, 'what was cached before is not used either');
    assert.equal(await cachedOf(zdr, `B ${prompt}`), 0);
    assert.equal(await cachedOf(zdr, `B ${prompt}`), 0);
    assert.ok((await cachedOf([], `B ${prompt}`)) < 20, 'only what every prompt begins with');
  });

  test('reached a backend that retains', () => {
    const asked = retaining.exchanges.filter(({ method }) => method === 'POST');
    assert.deepEqual(
      asked.map(({ body: text }) => text),
      [],
    );
    assert.ok(upstream.exchanges.length > 10);
  });
});

describe('afterwards', () => {
  /** Files that are gone by name and still held open have content too. */
  const openFiles = (): ReadonlyMap<string, Buffer> => {
    const found = new Map<string, Buffer>();
    for (const pid of [service.pid, childOf('near')]) {
      if (pid === undefined || process.platform !== 'linux') continue;
      for (const fd of readdirSync(`/proc/${pid}/fd`)) {
        const path = `/proc/${pid}/fd/${fd}`;
        try {
          if (readlinkSync(path).endsWith(' (deleted)')) found.set(path, readFileSync(path));
        } catch {
          // Closed meanwhile, or nothing that can be read.
        }
      }
    }
    return found;
  };

  /** All that was written, and all that the running service tells any caller. */
  async function remains(): Promise<ReadonlyMap<string, Uint8Array>> {
    const files = [...filesBelow(service.folder), ...filesBelow(temporary)];
    const reported = new Map<string, string>([
      ['output', service.output],
      ['metrics', await (await fetch(`${service.accountUrl}/metrics`)).text()],
      ['control socket', JSON.stringify(await askForStatus(controlSocketPath(join(service.folder, 'data'))))],
    ]);
    for (const command of [['usage', '--json', '--limit', '1000'], ['usage'], ['doctor'], ['keys', 'list', '--json']]) {
      const { stdout, stderr } = await service.command(...command);
      assert.notEqual(stdout, '', `${command.join(' ')}: ${stderr}`);
      reported.set(`tokenhouse ${command.join(' ')}`, stdout + stderr);
    }
    return new Map([
      ...[...reported].map(([where, text]) => [where, Buffer.from(text)] as const),
      ...files.filter(([path]) => basename(path) !== 'tokenhouse.yaml'),
      ...openFiles(),
    ]);
  }

  test('the search finds what is planted: in the log, the database, a file, an answer of the service', async () => {
    const kept = new Canaries();
    const plain = kept.at('request id without zero data retention');
    const name = kept.at('name of a key');
    const file = kept.at('temporary file');
    await askChat(service, { model: 'demo', messages: [{ role: 'user', content: 'hi' }] }, [['X-Request-Id', plain]]);
    assert.equal((await service.command('keys', 'create', '--name', name)).code, 0);
    const planted = join(temporary, 'planted');
    writeFileSync(
      planted,
      Buffer.from(`{"image":"${Buffer.from(`xy${file}`).toString('base64')}"}`, 'utf16le').filter(
        (_, index) => index % 2 === 0,
      ),
    );
    await until(() => service.output.includes(plain), patienceMs);
    const seen = sightings(kept.all, await remains()).map(({ place, where }) => `${place}: ${basename(where)}`);
    rmSync(planted);
    for (const expected of [
      /^request id .*: output$/,
      /^request id .*: tokenhouse\.db/,
      /^request id .*: tokenhouse usage --json/,
      /^name of a key: tokenhouse\.db/,
      /^name of a key: tokenhouse keys list/,
      /^temporary file: planted$/,
    ]) {
      assert.ok(
        seen.some((sighting) => expected.test(sighting)),
        `${expected}: ${seen.join(', ')}`,
      );
    }
  });

  test('no crash has left a core dump', () => {
    const cores = [...filesBelow(service.folder).keys(), ...filesBelow(temporary).keys()].filter((path) =>
      /^core/.test(basename(path)),
    );
    assert.deepEqual(cores, []);
  });

  test('nothing of any request or answer is anywhere, while the service runs and when it has stopped', async () => {
    assert.ok(canaries.all.length > 900, String(canaries.all.length));
    const running = await remains();
    assert.ok([...running.keys()].some((path) => path.endsWith('.db')));
    assert.deepEqual(sightings(canaries.all, running), []);
    await service.stop();
    const stopped = new Map([...filesBelow(service.folder), ...filesBelow(temporary)]);
    assert.deepEqual(sightings(canaries.all, stopped), []);
  });

  test('what is kept of each are figures, and an id of the service', async () => {
    const { requests } = await service.usage();
    const own = requests.filter(({ request_id: id }) => !id.startsWith('client_'));
    assert.ok(own.length > 20);
    for (const { request_id: id } of own) assert.match(id, /^req_[0-9a-f]{12}$/);
    assert.equal(completions.length, 6);
    const ids = new Set(own.map(({ id }) => id.replaceAll('-', '')));
    for (const id of completions) assert.ok(ids.has(id), 'the receipt is found by the id of the answer');
  });
});
