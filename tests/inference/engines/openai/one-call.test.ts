import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import { chatChunk, event, eventually, Upstream, usageChunk } from '../../../support/upstream.ts';
import { all, engineRequest } from '../contract.ts';

/** Contracts §0.14: `parallel_tool_calls: false` also holds at servers that take no notice of it. */
const call = (index: number, name: string, choice = 0): string =>
  event({
    choices: [
      {
        index: choice,
        delta: { tool_calls: [{ index, id: `call_${name}`, type: 'function', function: { name, arguments: '' } }] },
      },
    ],
  });
const args = (index: number, text: string, choice = 0): string =>
  event({ choices: [{ index: choice, delta: { tool_calls: [{ index, function: { arguments: text } }] } }] });

async function answer(
  parallelToolCalls: boolean,
  choices: number,
  chunks: readonly string[],
  endsByItself: boolean,
): Promise<{ readonly events: readonly GenerationEvent[]; readonly closed: boolean }> {
  let closed = false;
  const upstream = await Upstream.start((exchange) => {
    void exchange.closed.then(() => (closed = true));
    exchange.events();
    for (const chunk of chunks) exchange.chunk(chunk);
    if (endsByItself) exchange.endChunks();
  });
  const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'vllm' });
  const request = engineRequest('x', { parallelToolCalls, choices });
  const events = (await all(engine, request, new AbortController().signal)).flat();
  if (!endsByItself) await eventually('the server is told to stop', () => closed, 30_000);
  await engine.close();
  await upstream.close();
  return { events, closed };
}

const shown = (events: readonly GenerationEvent[]): readonly string[] =>
  events.flatMap((one) => {
    if (one.type === 'tool-call') return [`${one.choice}: ${one.name}`];
    if (one.type === 'tool-arguments') return [`${one.choice}: ${one.text}`];
    return one.type === 'finish' ? [`${one.choice}: ${one.reason}`] : [];
  });

test('a choice ends with its first call, and the server is told to stop', { timeout: 60_000 }, async () => {
  // It goes on for ever: only the cut ends it.
  const { events } = await answer(false, 1, [call(0, 'a'), args(0, '{}'), call(1, 'b'), args(1, '{}')], false);
  assert.deepEqual(shown(events), ['0: a', '0: {}', '0: tool-calls']);
  assert.equal(events.at(-1)?.type, 'usage');
});

test('both calls in one chunk', { timeout: 60_000 }, async () => {
  const both = chatChunk({
    tool_calls: ['a', 'b'].map((name, index) => ({ index, id: name, function: { name, arguments: '{}' } })),
  });
  const { events } = await answer(false, 1, [both], false);
  assert.deepEqual(shown(events), ['0: a', '0: {}', '0: tool-calls']);
});

test('of two choices the other goes on', { timeout: 60_000 }, async () => {
  const { events } = await answer(
    false,
    2,
    [
      call(0, 'a'),
      call(1, 'b'),
      args(1, '{"b":1}'),
      call(0, 'c', 1),
      args(0, '{}', 1),
      event({ choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] }),
      event({ choices: [{ index: 1, delta: {}, finish_reason: 'tool_calls' }] }),
      usageChunk({ prompt_tokens: 5, completion_tokens: 9 }),
      event('[DONE]'),
    ],
    true,
  );
  assert.deepEqual(shown(events), ['0: a', '0: {}', '0: tool-calls', '1: c', '1: {}', '1: tool-calls']);
});

test('several calls where they are wanted', { timeout: 60_000 }, async () => {
  const { events } = await answer(
    true,
    1,
    [call(0, 'a'), args(0, '{}'), call(1, 'b'), chatChunk({}, 'tool_calls'), event('[DONE]')],
    true,
  );
  assert.deepEqual(shown(events), ['0: a', '0: {}', '0: b', '0: {}', '0: tool-calls']);
});
