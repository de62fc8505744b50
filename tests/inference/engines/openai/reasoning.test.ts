import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import { newDecoder } from './decoding.ts';
import type { DecodeSettings } from './decoding.ts';

interface Reply {
  readonly text: string;
  readonly reasoning: string;
  readonly reasoningTokens: number;
  readonly completionTokens: number;
  readonly promised: readonly string[];
}

const finish = { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] };
const delta = (fields: object) => ({ choices: [{ index: 0, delta: fields, finish_reason: null }] });
const said = (...pieces: readonly string[]) => pieces.map((content) => delta({ content }));
const thought = (...pieces: readonly string[]) => pieces.map((text) => delta({ reasoning_content: text }));

function reply(chunks: readonly object[], settings: DecodeSettings): Reply {
  const decoder = newDecoder(settings);
  const events: GenerationEvent[] = [];
  for (const chunk of [
    ...chunks,
    finish,
    { usage: { prompt_tokens: 9, completion_tokens: chunks.length }, choices: [] },
  ]) {
    decoder.event(JSON.stringify(chunk), '');
    events.push(...decoder.drain());
  }
  decoder.event('[DONE]', '');
  events.push(...decoder.drain());
  assert.equal(events[0]?.type, 'start');
  const usage = events.findLast((event) => event.type === 'usage')?.usage;
  const textOf = (type: 'text' | 'reasoning'): string =>
    events.map((event) => (event.type === type ? event.text : '')).join('');
  return {
    text: textOf('text'),
    reasoning: textOf('reasoning'),
    reasoningTokens: usage?.reasoningTokens ?? -1,
    completionTokens: usage?.completionTokens ?? -1,
    promised: events.map(({ type }) => type),
  };
}

describe('a server that leaves think tags in its text, §4.2.5(1)', () => {
  const split: DecodeSettings = { splitsThinking: true };

  it('has them split off, and their tokens counted, wherever the text is cut', () => {
    const whole = '<think>\nIt is two.\n</think>\n\nTwo, of <b>course</b>.';
    for (let size = 1; size <= whole.length; size++) {
      const pieces = whole.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? [];
      const { text, reasoning, reasoningTokens } = reply(said(...pieces), split);
      assert.equal(text, 'Two, of <b>course</b>.', `pieces of ${size}`);
      assert.equal(reasoning.trim(), 'It is two.', `pieces of ${size}`);
      assert.ok(reasoningTokens > 0 && reasoningTokens <= pieces.length, `pieces of ${size}`);
    }
  });

  it('keeps a text without tags, and tags that come after the answer has begun', () => {
    for (const text of ['Two.', 'Write <think> and </think>.', '< think>', '<thin', '']) {
      const found = reply(said(...text), split);
      assert.deepEqual([found.text, found.reasoning, found.reasoningTokens], [text, '', 0]);
    }
  });

  it('takes a thought without an end for a thought', () => {
    const found = reply(said('<think>', 'still', ' thinking'), split);
    assert.deepEqual([found.text, found.reasoning], ['', 'still thinking']);
  });

  it('is left alone when the server splits by itself', () => {
    const found = reply([...thought('It is', ' two.'), ...said('Two: ', '<think>')], split);
    assert.deepEqual([found.text, found.reasoning, found.reasoningTokens], ['Two: <think>', 'It is two.', 2]);
  });

  it('is left alone on a model that does not reason, or whose card leaves reasoning in the answer', () => {
    const text = '<think>\na\n</think>\n\nb';
    assert.equal(reply(said(text), {}).text, text);
    assert.equal(reply(said(text), { reasoningForm: 'inline' }).text, text);
  });

  it('gives the logprobs of the answer only', () => {
    const piece = (content: string) => ({
      choices: [
        { index: 0, delta: { content }, logprobs: { content: [{ token: content, logprob: -1, top_logprobs: [] }] } },
      ],
    });
    const decoder = newDecoder({ ...split, logprobs: 0 });
    for (const content of ['<think>', 'a', '</think>', '\n\n', 'b', 'c']) {
      decoder.event(JSON.stringify(piece(content)), '');
    }
    decoder.event(JSON.stringify(finish), '');
    const tokens = decoder.drain().flatMap((event) => (event.type === 'text' ? (event.logprobs ?? []) : []));
    assert.deepEqual(tokens.map(({ token }) => token).slice(-2), ['b', 'c']);
    assert.ok(!tokens.some(({ token }) => token === 'a' || token === '<think>'));
  });
});

describe('the form of reasoning', () => {
  it('inline: between think tags in the answer, §4.2.5(1)', () => {
    const found = reply([...thought('It is', ' two.'), ...said('Two.')], { reasoningForm: 'inline' });
    assert.deepEqual([found.text, found.reasoning], ['<think>\nIt is two.\n</think>\n\nTwo.', '']);
    assert.equal(reply(thought('a'), { reasoningForm: 'inline' }).text, '<think>\na\n</think>\n\n');
  });

  it('hidden: not returned, not counted as reasoning, but as completion, §4.2.5(4)', () => {
    for (const chunks of [
      [...thought('It is', ' two.'), ...said('Two.')],
      said('<think>', 'It is two.', '</think>Two.'),
    ]) {
      const found = reply(chunks, { reasoningForm: 'hidden', splitsThinking: true });
      assert.deepEqual([found.text, found.reasoning, found.reasoningTokens], ['Two.', '', 0]);
      assert.equal(found.completionTokens, 3);
    }
  });

  it('hidden: its tokens are counted while it runs, so that one who leaves pays for them', () => {
    const decoder = newDecoder({ reasoningForm: 'hidden' });
    for (const chunk of thought('a', ' b', ' c')) decoder.event(JSON.stringify(chunk), '');
    assert.deepEqual(decoder.drain(), [
      { type: 'start', promptTokens: undefined },
      {
        type: 'usage',
        usage: { promptTokens: undefined, cachedTokens: 0, completionTokens: 3, reasoningTokens: 0 },
        counted: true,
      },
    ]);
  });
});
