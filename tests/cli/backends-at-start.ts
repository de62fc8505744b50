/** What a start and a reload say of servers that are not ours: how each is, and what is to be done. */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';

import { TestService, until } from '../support/service.ts';
import { Upstream } from '../support/upstream.ts';
import type { UpstreamExchange } from '../support/upstream.ts';

/** vLLM with the models `theirs` and `other`. */
function vllm(exchange: UpstreamExchange): void {
  const entry = (id: string): object => ({ id, object: 'model', owned_by: 'vllm' });
  if (exchange.path === '/v1/models') exchange.json(200, { object: 'list', data: ['theirs', 'other'].map(entry) });
  else {
    const message = 'The model `m` does not exist. secret-7.';
    exchange.json(404, { error: { message, type: 'NotFoundError', param: 'model', code: 404 } });
  }
}

const model = (id: string, url: string, name: string): string => `  - id: ${id}
    context_length: 4096
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: vllm, name: gpu, url: "${url}", model: "${name}" } ]`;

/** `database` makes the one that it works on; SQLite when left out. */
export function describeBackendsAtStart(
  what: string,
  { workers = 1, database }: { readonly workers?: number; readonly database?: () => Promise<string> } = {},
): void {
  describe(what, () => {
    let server: Upstream;
    /** Takes connections and says nothing. */
    let silent: Upstream;
    let closedPort = 0;

    before(async () => {
      server = await Upstream.start(vllm, { isLookedAt: true });
      silent = await Upstream.start(() => {}, { isLookedAt: true });
      const gone = createServer();
      await new Promise<void>((resolve) => gone.listen(0, '127.0.0.1', resolve));
      closedPort = (gone.address() as AddressInfo).port;
      await new Promise<void>((resolve) => gone.close(() => resolve()));
    });
    after(async () => {
      await server.close();
      await silent.close();
    });

    const configOf = (names: { readonly wrong: string }): string =>
      [
        'models:',
        model('right', server.url, 'theirs'),
        model('wrong', server.url, names.wrong),
        model('dead', `http://127.0.0.1:${closedPort}/v1`, 'theirs'),
        model('silent', silent.url, 'theirs'),
      ].join('\n');

    let service: TestService;
    let elapsedMs = 0;
    before(async () => {
      const on = database === undefined ? {} : { database: await database() };
      service = new TestService({ config: configOf({ wrong: 'thiers' }), workers, ...on });
      const startedAt = performance.now();
      await service.start();
      elapsedMs = performance.now() - startedAt;
    });
    after(() => service.dispose());

    test('the start says how each backend is, and goes on without those that are not there', () => {
      const said = service.output;
      const origin = (url: string): string => new URL(url).origin.replaceAll('.', '\\.');
      const line = (text: string): RegExp => new RegExp(`^${text}$`, 'm');
      assert.match(said, line(`model    right · gpu · ${origin(server.url)} · ready`));
      assert.match(
        said,
        line(`model    wrong · gpu · ${origin(server.url)} · answers, but does not match the configuration`),
      );
      assert.match(said, line(`  why     The server has no model 'thiers'\\. It has: theirs, other\\. .*`));
      assert.match(said, line(`model    dead · gpu · http://127\\.0\\.0\\.1:${closedPort} · not available now`));
      assert.match(said, line('  why     Nothing listens at .*'));
      assert.match(said, line(`model    silent · gpu · ${origin(silent.url)} · not available now`));
      assert.match(said, line('  why     .* does not answer within 3 seconds\\..*'));
      assert.ok(elapsedMs < 60_000, `it took ${elapsedMs} ms`);
    });

    test('so does the log, with a level that says who is to act', () => {
      const reported = service.log
        .filter(({ event }) => event === 'backend_looked_at')
        .map(({ level, model: of, state }) => [of, level, state]);
      assert.deepEqual(
        new Set(reported.map((one) => one.join(' '))),
        new Set(['right info ready', 'wrong error wrong', 'dead warn down', 'silent warn down']),
      );
      assert.equal(reported.length, 4, 'once each, whatever the number of processes');
    });

    test("a backend's 404 for the model: 503 no_healthy_backends, and an error in the log that names the model", async () => {
      const answer = await service.chat({ model: 'wrong', messages: [{ role: 'user', content: 'hi' }] });
      const text = await answer.text();
      assert.equal(answer.status, 503, text);
      const { error } = JSON.parse(text) as { error: { code: string; message: string; model: string } };
      assert.equal(error.code, 'no_healthy_backends');
      assert.equal(error.model, 'wrong');
      assert.ok(!/again|secret/.test(error.message), error.message);
      await until(() => service.log.some(({ event }) => event === 'backend_incident'), 10_000);
      const incident = service.log.find(({ event }) => event === 'backend_incident');
      assert.deepEqual(
        [incident?.['level'], incident?.['incident'], incident?.['status'], incident?.['asked_for'], incident?.['url']],
        ['error', 'not_found', 404, 'thiers', server.url],
      );
    });

    test('a reload looks again, and its command says what was found', async () => {
      service.configure({ config: configOf({ wrong: 'theris' }), workers });
      await until(() => service.log.filter(({ event }) => event === 'backend_looked_at').length >= 8, 30_000);
      assert.match(JSON.stringify(service.log), /has no model 'theris'\. It has: theirs, other/);
      // The service reads the file by itself too, and on a busy machine before the command has started.
      let stdout = '';
      for (let trial = 0; trial < 5 && (trial === 0 || stdout.includes('in force already')); trial++) {
        service.configure({ config: configOf({ wrong: trial % 2 === 0 ? 'other' : 'theirs' }), workers });
        ({ stdout } = await service.command('reload'));
      }
      assert.match(stdout, /^model {4}wrong · gpu · .* · ready$/m);
      assert.match(stdout, /^model {4}dead · gpu · .* · not available now$/m);
    });
  });
}
