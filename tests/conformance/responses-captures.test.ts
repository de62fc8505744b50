import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { assertEnvelope } from '../inference/http/envelope.ts';
import { assertPlainOr, Relay } from './relay.ts';
import { readResponseStream, responseKeys } from './responses-reader.ts';
import type { WireResponse } from './responses-reader.ts';
import { sendResponses } from './responses-relay.ts';
import { inRepository } from '../support/repository.ts';

/** Requests that unmodified clients really sent to /v1/responses, replayed: each gets a valid answer. */
const folder = inRepository('tests', 'fixtures', 'wire', 'responses');

let relay: Relay;
before(async () => {
  relay = await Relay.start(
    (url) => `
  - id: fake-model
    context_length: 200000
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    reasoning: { efforts: [none, low, high], default: none, preserves: true }
    backends: [ { engine: openai, flavor: vllm, url: "${url}" } ]`,
  );
});
after(() => relay.end());

interface Capture {
  readonly request: { readonly url: string; readonly body: Readonly<Record<string, unknown>> };
  readonly real_body_bytes: number;
}

/** What it refers to was said by another service. */
const unresolved: ReadonlySet<string> = new Set(['ai-sdk-19-multi-turn-responses']);

/** As large as the real one was: the recordings are cut. */
function padded({ request: { body }, real_body_bytes: bytes }: Capture): Readonly<Record<string, unknown>> {
  const missing = Math.max(0, bytes - Buffer.byteLength(JSON.stringify(body)));
  return { ...body, instructions: `${(body['instructions'] as string | undefined) ?? ''}${'x'.repeat(missing)}` };
}

const captures = readdirSync(folder)
  .toSorted()
  .map((file) => ({
    name: file.slice(0, -'.json'.length),
    capture: JSON.parse(readFileSync(join(folder, file), 'utf8')) as Capture,
  }));

for (const { name, capture } of captures) {
  for (const [how, body] of [
    ['as it was recorded', capture.request.body],
    ['as large as it was', padded(capture)],
  ] as const) {
    for (const stream of [false, true]) {
      test(`${name}, ${how}, ${stream ? 'streamed' : 'whole'}`, async () => {
        assert.equal(capture.request.url, '/v1/responses');
        const answer = await sendResponses(relay.service, { ...body, model: 'fake-model', stream });
        if (unresolved.has(name)) {
          const error = assertEnvelope(answer, 'unsupported_parameter', { param: 'input[1]' });
          assert.match(String(error['message']), /'store'/);
          return;
        }
        assert.equal(answer.status, 200, answer.body);
        const response = stream ? readResponseStream(answer.body).response : (JSON.parse(answer.body) as WireResponse);
        assert.equal(response.status, 'completed');
        assert.deepEqual(Object.keys(response).toSorted(), responseKeys.toSorted());
        const { format } = (body['text'] ?? {}) as { readonly format?: { readonly type: string } };
        assertPlainOr(response.output.at(-1)?.content?.[0]?.text, format !== undefined && format.type !== 'text');
        assert.equal(response['store'], body['store'] ?? true);
        if (body['tools'] !== undefined)
          assert.deepEqual(
            (response['tools'] as { type: string; name?: string }[]).map(({ type, name: of }) => [type, of]),
            (body['tools'] as { type: string; name?: string }[]).map(({ type, name: of }) => [type, of]),
          );
      });
    }
  }
}

test('captures: Codex offers its functions to the model, and not its namespaces and searches', async () => {
  relay.asked();
  const codex = captures.find(({ name }) => name === 'codex-01-first-turn');
  assert.ok(codex);
  await sendResponses(relay.service, { ...codex.capture.request.body, model: 'fake-model' });
  const [asked] = relay.asked();
  const offered = (asked?.['tools'] as { function: { name: string } }[]).map((tool) => tool.function.name);
  const functions = (codex.capture.request.body['tools'] as { type: string; name: string }[]).filter(
    ({ type }) => type === 'function',
  );
  assert.ok(functions.length > 3);
  assert.deepEqual(
    offered,
    functions.map(({ name }) => name),
  );
  const roles = (asked?.['messages'] as { role: string }[]).map(({ role }) => role);
  assert.deepEqual([...new Set(roles)], ['system', 'user']);
});
