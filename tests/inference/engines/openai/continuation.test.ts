import assert from 'node:assert/strict';
import { describe, it } from 'node:test';

import fc from 'fast-check';

import { EchoedBeginning } from '../../../../src/inference/engines/openai/echoed-beginning.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import type { EngineRequest } from '../../../../src/generation/request.ts';
import { Upstream, chatChunk, event, usageChunk } from '../../../support/upstream.ts';
import { all, engineRequest, textOf } from '../contract.ts';

const request = (words: string): EngineRequest =>
  engineRequest('', {
    prompt: {
      type: 'messages',
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'Count.' }] },
        {
          role: 'assistant',
          content: [{ type: 'text', text: words }],
          reasoning: [],
          toolCalls: [],
          isBeginning: true,
        },
      ],
    },
  });

/** What an engine of this flavor makes of an answer in these pieces to a request to go on with `one, two,`. */
async function answerOf(flavor: 'llama-server' | 'vllm', pieces: readonly string[]): Promise<string> {
  const upstream = await Upstream.start((exchange) => {
    if (exchange.path !== '/v1/chat/completions') return exchange.json(404, {});
    exchange.events();
    exchange.chunk(
      [
        chatChunk({ role: 'assistant', content: null }),
        ...pieces.map((content) => chatChunk({ content })),
        chatChunk({}, 'stop'),
        usageChunk({ prompt_tokens: 5, completion_tokens: 3 }),
        event('[DONE]'),
      ].join(''),
    );
    exchange.endChunks();
  });
  const engine = createOpenAiEngine({ name: 'm', url: `${upstream.url}`, flavor });
  try {
    return textOf(await all(engine, request('one, two,'), new AbortController().signal));
  } finally {
    await engine.close();
    await upstream.close();
  }
}

describe('words to go on with', () => {
  // As llama-server b1-80fb11a streams it: the words stand in the first piece, with the first token.
  it('that llama-server says again are not said twice', async () => {
    assert.equal(await answerOf('llama-server', ['one, two, three', ',', ' four']), ' three, four');
    assert.equal(await answerOf('llama-server', ['one,', ' two,', ' three']), ' three');
  });

  it('that a server does not say again may come in its own text', async () => {
    assert.equal(await answerOf('llama-server', [' three', ', four']), ' three, four');
    assert.equal(await answerOf('llama-server', ['one, ', 'too']), 'one, too');
    assert.equal(await answerOf('llama-server', ['one,']), 'one,');
    assert.equal(await answerOf('vllm', ['one, two, three']), 'one, two, three');
  });

  it('however they are cut, nothing of the answer is lost', () => {
    const text = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 6 });
    fc.assert(
      fc.property(text, fc.array(text, { maxLength: 6 }), (words, pieces) => {
        const echo = new EchoedBeginning(words);
        const got = pieces.map((piece) => echo.take(piece)).join('') + echo.rest();
        const said = pieces.join('');
        assert.equal(got, said.startsWith(words) ? said.slice(words.length) : said);
      }),
    );
  });
});
