import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { GenerationEvent } from '../../../../src/generation/event.ts';
import type { ReportedIncident } from '../../../../src/inference/engines/openai/incidents.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { notFinished, oddFinishes, oddTexts } from '../../../support/odd-answers.ts';
import { chatChunk, event, Upstream, usageChunk } from '../../../support/upstream.ts';
import { all, engineRequest } from '../contract.ts';
import { decode, newDecoder, type DecodeSettings } from './decoding.ts';

const end = { index: 0, delta: {}, finish_reason: 'stop' };
const streamOf = (choices: readonly object[]): Buffer =>
  Buffer.from(choices.map((choice) => event({ choices: [choice] })).join('') + event('[DONE]'));

function said(events: readonly GenerationEvent[], type: 'text' | 'reasoning'): string {
  return events.reduce((sum, one) => {
    if (one.type !== type) return sum;
    assert.ok(one.text.isWellFormed(), 'half a character');
    return sum + one.text;
  }, '');
}

describe('texts of odd servers', () => {
  for (const { what, pieces, text, reasoning = '', splits = false } of oddTexts) {
    it(`${what}`, () => {
      const choices = pieces.map((piece) => ({ index: 0, ...piece, finish_reason: null }));
      const { events, failure } = decode([streamOf([...choices, end])], { splitsThinking: splits });
      assert.equal(failure, undefined);
      assert.deepEqual([said(events, 'text'), said(events, 'reasoning')], [text, reasoning]);
    });
  }

  it('a list of parts in the message of a whole answer', () => {
    const decoder = newDecoder();
    const message = {
      content: [
        { type: 'thinking', thinking: 'hm' },
        { type: 'text', text: 'Hello' },
      ],
    };
    const usage = { prompt_tokens: 1, completion_tokens: 2 };
    decoder.whole(JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }], usage }));
    const events = decoder.drain();
    assert.deepEqual([said(events, 'text'), said(events, 'reasoning')], ['Hello', 'hm']);
  });

  it('the halves of a character in a template, which steps aside, and in logprobs', () => {
    const word = (content: string) => ({ index: 0, delta: { content }, finish_reason: null });
    const words = Array.from({ length: 40 }, () => word('a'));
    const halves = [word('\ud83d'), word('\ude00')];
    const { events } = decode([streamOf([...words, ...halves, ...words, halves[0]!, ...words, end])]);
    assert.equal(said(events, 'text'), `${'a'.repeat(40)}😀${'a'.repeat(40)}\ufffd${'a'.repeat(40)}`);
    const withLogprobs = halves.map((choice, at) => ({
      ...choice,
      logprobs: { content: [{ token: '\ud83d\ude00'[at], logprob: -1, top_logprobs: [] }] },
    }));
    const { events: shown } = decode([streamOf([...withLogprobs, end])], { logprobs: 0 });
    const tokens = shown.flatMap((one) => (one.type === 'text' ? (one.logprobs ?? []) : []));
    assert.deepEqual(
      tokens.map(({ token }) => token),
      ['\ufffd', '\ufffd'],
    );
  });

  it('the halves of a character in a text completion', () => {
    const completion = {
      prompts: ['x'],
      isEchoed: false,
      ownEcho: () => undefined,
      returnsIds: false,
      hasLogprobs: false,
    };
    const pieces = ['a\ud83d', '\ude00b', 'c\ud83d'].map((text) => ({ index: 0, text, finish_reason: null }));
    const { events } = decode([streamOf([...pieces, { index: 0, text: '', finish_reason: 'stop' }])], { completion });
    assert.equal(said(events, 'text'), 'a😀bc\ufffd');
  });

  it('a chat where a text completion was asked for is a failure, not an empty text', () => {
    const completion = {
      prompts: ['x'],
      isEchoed: false,
      ownEcho: () => undefined,
      returnsIds: false,
      hasLogprobs: false,
    };
    for (const said of [{ delta: { content: 'Hello' } }, { message: { content: 'Hello' } }]) {
      const { failure } = decode([streamOf([{ index: 0, ...said, finish_reason: 'stop' }])], { completion });
      assert.equal(failure, 'StreamFault');
    }
  });
});

describe('finishes of odd servers', () => {
  const finishOf = (word: string, settings: DecodeSettings = {}) =>
    decode(
      [
        streamOf([
          { index: 0, delta: { content: 'Hel' } },
          { ...end, finish_reason: word },
        ]),
      ],
      settings,
    );

  for (const [kind, words] of Object.entries(oddFinishes)) {
    it(`${words.join(', ')}: ${kind}`, () => {
      for (const word of words) {
        const { events, failure } = finishOf(word);
        const reason = events.find((one) => one.type === 'finish')?.reason;
        assert.equal(failure === 'StreamFault' ? 'failed' : reason, kind, word);
      }
    });
  }

  it('a null in words is none', () => {
    for (const word of notFinished) {
      const choices = ['Hel', 'lo'].map((content) => ({ index: 0, delta: { content }, finish_reason: word }));
      const { events, failure } = decode([streamOf([...choices, end])]);
      assert.deepEqual([failure, said(events, 'text')], [undefined, 'Hello'], String(word));
    }
  });

  it('an unknown one is reported once for a server and a word, and its text only where it is a word', async () => {
    const incidents: ReportedIncident[] = [];
    let word = '';
    const upstream = await Upstream.start((exchange) => {
      exchange.events();
      for (const chunk of [chatChunk({ content: 'Hello' }), chatChunk({}, word)]) exchange.chunk(chunk);
      exchange.chunk(usageChunk({ prompt_tokens: 5, completion_tokens: 1 }));
      exchange.chunk(event('[DONE]'));
      exchange.endChunks();
    });
    const onIncident = (incident: ReportedIncident) => void incidents.push(incident);
    const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'openai', onIncident });
    for (word of ['tomorrow', 'tomorrow', 'stop', 'tomorrow', 'He said:\n"no"'])
      await all(engine, engineRequest('x'), new AbortController().signal);
    await engine.close();
    await upstream.close();
    assert.deepEqual(
      incidents.map(({ incident, cause }) => [incident, cause]),
      [
        ['unknown_finish', 'tomorrow'],
        ['unknown_finish', 'another text'],
      ],
    );
  });
});
