/** What the card says of a real llama-server, looked at by `tokenhouse doctor --claims`, and corrected. */
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

test('every claim that can be looked at is kept, but for tools, of which its template knows nothing; --write says so on the card', async () => {
  const { stdout } = await service.command('doctor', '--claims');
  const warnings = stdout.split('\n').filter((line) => /^warning +claims/.test(line));
  assert.ok(
    warnings.some((warning) => warning.includes('real · gpu · tools: ')),
    stdout,
  );
  // What it writes instead depends on the kernels of the processor, and so does whether that can be streamed as a call.
  for (const warning of warnings) assert.match(warning, /real · gpu · tool(s|_streaming): /, stdout);
  const line = keptOf(stdout);
  for (const claim of ['usage', 'abort', 'json_object', 'json_schema', 'grammar', 'logprobs', 'min_p', 'top_k'])
    assert.match(line, new RegExp(`(^|, )${claim}(,| ·|$)`), line);

  await service.command('doctor', '--claims', '--write');
  const corrected = await service.command('doctor', '--claims');
  assert.doesNotMatch(corrected.stdout, /^warning +claims/m, corrected.stdout);
  assert.doesNotMatch(keptOf(corrected.stdout), /(^|, )tools(,| ·|$)/);
});

function keptOf(stdout: string): string {
  const line = /^ok +claims +real · gpu · (.*)$/m.exec(stdout)?.[1];
  assert.ok(line !== undefined, stdout);
  return line;
}
