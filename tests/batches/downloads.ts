import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';

import { BatchClient, chatLine } from '../support/batch-client.ts';
import { noFeatures, scriptedModel, TestService } from '../support/service.ts';

/** The results of a batch at the account host are the files that the inference host sends, until they are deleted there. */
export async function downloads(
  t: TestContext,
  options: { readonly workers?: number; readonly database?: string } = {},
): Promise<void> {
  const config = scriptedModel(
    `- { when: { last_text: broken }, say: [{ text: one }], fault: { type: error, after_tokens: 0, code: context_length_exceeded } }
- { say: [{ text: "one two three" }] }`,
    { settings: noFeatures },
  );
  const service = new TestService({ config, ...options });
  t.after(() => service.dispose());
  await service.start();
  const made = await service.command('keys', 'create', '--role', 'owner', '--json');
  const { key } = JSON.parse(made.stdout) as { readonly key: string };
  const client = new BatchClient(service);
  const lines = [chatLine('short', 'x'), chatLine('failed', 'broken')];
  const { id, output_file_id: output, error_file_id: error } = await client.when((await client.of(lines)).id);
  assert.ok(output !== null && error !== null);
  const ask = async (query: string): Promise<Response> =>
    await fetch(`${service.accountUrl}/v1/batch_runs/${id}/results${query}`, {
      headers: { authorization: `Bearer ${key}` },
    });
  for (const [query, fileId] of [
    ['', output],
    ['?file=error', error],
  ] as const) {
    const answer = await ask(query);
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    assert.equal(text, await (await client.send(`/files/${fileId}/content`)).text());
    assert.ok(text.includes('"custom_id"'), text);
    assert.equal((await client.send(`/files/${fileId}`, { method: 'DELETE' })).status, 200);
    assert.equal((await ask(query)).status, 404);
  }
}
