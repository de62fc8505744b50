/** What the card says of a real llama-server holds: `tokenhouse doctor --claims` finds nothing to correct. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { TestService } from '../../support/service.ts';
import { LlamaServer, defaultModelFile, stopServer } from './llama-server.ts';

let server: LlamaServer | undefined;
let service: TestService;
before(async () => {
  server = await LlamaServer.start({ modelFile: defaultModelFile(), slots: 2, contextLength: 2048 });
  service = new TestService({
    config: `models:
  - id: real
    context_length: 1024
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, name: gpu, flavor: llama-server, url: "${server.url}" } ]`,
  });
});
after(async () => {
  await service.dispose();
  await stopServer(server);
});

test('every claim that can be looked at is kept', async () => {
  const { stdout } = await service.command('doctor', '--claims');
  assert.doesNotMatch(stdout, /^warning +claims/m, stdout);
  const line = /^ok +claims +real · gpu · (.*)$/m.exec(stdout)?.[1];
  assert.ok(line !== undefined, stdout);
  for (const claim of [
    'usage',
    'abort',
    'tools',
    'json_object',
    'json_schema',
    'grammar',
    'logprobs',
    'min_p',
    'top_k',
  ])
    assert.match(line, new RegExp(`(^|, )${claim}(,| ·|$)`), line);
});
