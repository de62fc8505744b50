import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { MessagesClient, textOf, user } from '../../conformance/messages-ask.ts';
import { InnerService, scriptedModel } from '../../support/service.ts';

/** Thinking that is not shown is silence on the line, for minutes perhaps; comments keep it alive (contracts §0.17). */
const service = new InnerService({
  limits: '  prime_timeout_seconds: 1',
  config: scriptedModel(
    `
- say: [ { reasoning: [ "hm " ] } ]
  repeat: 40
  pace_ms: 100`,
    { settings: 'reasoning: { efforts: [none, low], default: none }' },
  ),
});
before(() => service.start());
after(() => service.dispose());

test('comments come while a model thinks and nothing of it is shown', async () => {
  const body = { messages: [user('x')], thinking: { type: 'adaptive', display: 'omitted' }, max_tokens: 500 };
  const { text, message } = await new MessagesClient(service).streamed(body);
  const [, thinking = ''] = text.split('event: content_block_start\n');
  // Four seconds of thinking, and a comment after each that is silent.
  assert.match(thinking, /^data: .*\n\n(: keep-alive\n\n)+event: content_block_delta\ndata: .*signature_delta/);
  assert.equal(textOf(message), '');
});
