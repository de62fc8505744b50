import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Value } from 'typebox/value';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { Engine } from '../../../../src/inference/engines/engine.ts';
import {
  scriptRule,
  scriptSchema,
  type ScriptSettings,
} from '../../../../src/inference/engines/scripted/script-schema.ts';
import { createScriptedEngine } from '../../../../src/inference/engines/scripted/scripted-engine.ts';
import type { GenerationBatch, GenerationEvent } from '../../../../src/generation/event.ts';
import type { EngineRequest, Message } from '../../../../src/generation/request.ts';
import { all, engineRequest, lastUsage, textOf } from '../contract.ts';
import { pull } from '../pull.ts';

const user = (text: string): Message => ({ role: 'user', content: [{ type: 'text', text }] });
const assistant = (text: string): Message => ({
  role: 'assistant',
  content: [{ type: 'text', text }],
  reasoning: [],
  toolCalls: [],
});
const messages = (...list: readonly Message[]): Partial<EngineRequest> => ({
  prompt: { type: 'messages', messages: list },
});
const weather = { type: 'function', name: 'get_weather', description: undefined, parameters: { type: 'object' } };

function engineOf(scripts: readonly ScriptSettings[], contextLength = 10_000, reasons = false): Engine {
  for (const script of scripts) assert.ok(Value.Check(scriptSchema, script));
  return createScriptedEngine({ name: 'demo', contextLength, reasons, scripts: scripts.map(scriptRule) });
}

function run(engine: Engine, more: Partial<EngineRequest> = {}, text = 'hi'): Promise<GenerationBatch[]> {
  return all(engine, engineRequest(text, more), new AbortController().signal);
}

async function failure(
  engine: Engine,
  more: Partial<EngineRequest> = {},
): Promise<{ error: ApiError; batches: GenerationBatch[] }> {
  const batches: GenerationBatch[] = [];
  try {
    for await (const batch of pull(engine, engineRequest('hi', more), new AbortController().signal))
      batches.push(batch);
  } catch (error) {
    assert.ok(error instanceof ApiError);
    return { error, batches };
  }
  assert.fail('it did not fail');
}

const finishOf = (batches: readonly GenerationBatch[]): GenerationEvent | undefined =>
  batches.flat().find((event) => event.type === 'finish');

describe('the rules of a script', () => {
  const engine = engineOf([
    { when: { model: 'another' }, say: [{ text: 'other model' }] },
    { when: { last_role: 'tool' }, say: [{ text: 'It is sunny.' }] },
    {
      when: { last_text: 'weather', tools: true },
      say: [{ tool_call: { name: 'get_weather', arguments: { city: 'Paris' } } }],
    },
    { when: { turn: 1, last_role: 'user' }, say: [{ text: 'second turn' }] },
    { when: { last_text: 'weather', tools: false }, say: [{ text: 'no tools' }] },
    { say: [{ text: 'default' }] },
  ]);

  it('are tried in order, on the last message, the tools and the turn', async () => {
    assert.equal(textOf(await run(engine)), 'default');
    assert.equal(textOf(await run(engine, {}, 'the weather, please')), 'no tools');
    assert.equal(textOf(await run(engine, messages(user('the weather'), assistant('x'), user('y')))), 'second turn');
    assert.equal(textOf(await run(engine, { tools: [weather], toolChoice: { type: 'none' } }, 'weather')), 'no tools');
    const called = await run(engine, { tools: [weather] }, 'weather');
    assert.deepEqual(finishOf(called), { type: 'finish', choice: 0, reason: 'tool-calls' });
    const tool: Message = { role: 'tool', toolCallId: 'call_1', content: [{ type: 'text', text: 'weather: 20' }] };
    assert.equal(
      textOf(await run(engine, { ...messages(user('weather'), assistant(''), tool), tools: [weather] })),
      'It is sunny.',
    );
    assert.equal(textOf(await run(engine, { prompt: { type: 'texts', prompts: ['weather'] } })), 'no tools');
  });

  it('must end in one that always applies', () => {
    assert.throws(() => engineOf([{ when: { turn: 0 }, say: [] }]), RangeError);
    assert.throws(() => engineOf([]), RangeError);
  });

  it('are refused by the schema when they hold what it does not know', () => {
    for (const wrong of [
      {},
      { say: 'hello' },
      { say: [{ text: 'a', reasoning: 'b' }] },
      { say: [], pace: 3 },
      { say: [], pace_ms: -1 },
      { say: [], pace_ms: 0.5 },
      { say: [], when: { last_role: 'developer' } },
      { say: [], fault: { after_tokens: 1, type: 'explode' } },
      { say: [], fault: { after_tokens: 1, type: 'error', code: 'invalid_api_key' } },
      { say: [], repeat: 0 },
      { say: [{ tool_call: { name: '' } }] },
    ]) {
      assert.ok(!Value.Check(scriptSchema, wrong), JSON.stringify(wrong));
    }
    assert.throws(() => scriptRule({ say: [{ text: 'a b c' }], repeat: 1_000_000 }), RangeError);
  });
});

describe('a script that is played', () => {
  it('says everything in one batch when it has no pace', async () => {
    const engine = engineOf([
      {
        say: [
          { reasoning: 'Let me see.' },
          { text: 'It is  fine.\n' },
          { tool_call: { name: 'f', arguments: ['{"a"', ':1}'] } },
        ],
        prompt_tokens: 42,
      },
    ]);
    const batches = await run(engine);
    assert.equal(batches.length, 1);
    assert.deepEqual(batches[0], [
      { type: 'start', promptTokens: 42 },
      { type: 'reasoning', choice: 0, text: 'Let' },
      { type: 'reasoning', choice: 0, text: ' me' },
      { type: 'reasoning', choice: 0, text: ' see.' },
      { type: 'text', choice: 0, text: 'It' },
      { type: 'text', choice: 0, text: ' is' },
      { type: 'text', choice: 0, text: '  fine.' },
      { type: 'text', choice: 0, text: '\n' },
      { type: 'tool-call', choice: 0, call: 0, id: `call_${engineRequest('').id}0_0`, name: 'f' },
      { type: 'tool-arguments', choice: 0, call: 0, text: '{"a"' },
      { type: 'tool-arguments', choice: 0, call: 0, text: ':1}' },
      { type: 'finish', choice: 0, reason: 'tool-calls' },
      { type: 'usage', usage: { promptTokens: 42, cachedTokens: 0, completionTokens: 10, reasoningTokens: 3 } },
    ]);
  });

  it('cuts texts into words, characters or nothing, and repeats them', async () => {
    const texts = async (chunk: 'word' | 'character' | 'whole'): Promise<unknown> =>
      (await run(engineOf([{ say: [{ text: 'a 🙂' }], chunk, repeat: 2 }])))
        .flat()
        .map((event) => (event.type === 'text' ? event.text : undefined))
        .filter((text) => text !== undefined);
    assert.deepEqual(await texts('word'), ['a', ' 🙂', 'a', ' 🙂']);
    assert.deepEqual(await texts('character'), ['a', ' ', '🙂', 'a', ' ', '🙂']);
    assert.deepEqual(await texts('whole'), ['a 🙂', 'a 🙂']);
  });

  it('gives a long script in batches of a bounded size', async () => {
    const batches = await run(engineOf([{ say: [{ text: 'x ' }], repeat: 1_000 }]));
    assert.ok(batches.length >= 4 && batches.every((batch) => batch.length <= 260));
    assert.equal(lastUsage(batches)?.usage.completionTokens, 2_000);
  });

  it('has every choice say the same, each with ids of its own', async () => {
    const engine = engineOf([{ say: [{ text: 'a b' }, { tool_call: { name: 'f' } }] }]);
    const events = (await run(engine, { choices: 3 })).flat();
    for (const choice of [0, 1, 2]) {
      const own = events.filter((event) => 'choice' in event && event.choice === choice);
      assert.deepEqual(
        own.map((event) => event.type),
        ['text', 'text', 'tool-call', 'tool-arguments', 'finish'],
      );
    }
    const ids = events.flatMap((event) => (event.type === 'tool-call' ? [event.id] : []));
    assert.equal(new Set(ids).size, 3);
    const two = await run(engine, { prompt: { type: 'texts', prompts: ['x', 'y'] }, choices: 2 });
    assert.equal(two.flat().filter((event) => event.type === 'finish').length, 4);
  });

  it('keeps max_tokens, stop strings and the window', async () => {
    const engine = engineOf([{ say: [{ reasoning: 'a b' }, { text: 'one two three four' }], prompt_tokens: 10 }], 14);
    const limited = await run(engine, { maxTokens: 3 });
    assert.equal(textOf(limited), 'one');
    assert.deepEqual(finishOf(limited), { type: 'finish', choice: 0, reason: 'length', cause: 'max-tokens' });
    const full = await run(engine);
    assert.equal(textOf(full), 'one two');
    assert.deepEqual(finishOf(full), { type: 'finish', choice: 0, reason: 'length', cause: 'window' });

    const stops = engineOf([{ say: [{ reasoning: 'three' }, { text: 'one two three four' }] }]);
    const stopped = await run(stops, { stop: ['x', 'o th'] });
    assert.equal(textOf(stopped), 'one tw');
    assert.deepEqual(finishOf(stopped), { type: 'finish', choice: 0, reason: 'stop', stopSequence: 'o th' });
    assert.equal(lastUsage(stopped)?.usage.completionTokens, 4, 'the tokens of the stop string were generated');
    assert.equal(textOf(await run(stops, { stop: ['four'], maxTokens: 4 })), 'one two three');
    assert.equal(textOf(await run(stops, { stop: ['three', 'one'] })), '');
  });

  it('reasons as it is asked (§4.2.5)', async () => {
    const script = [{ say: [{ reasoning: 'Let me see.' }, { text: 'It is fine.' }] }];
    const thinker = engineOf(script, 10_000, true);
    const said = async (engine: Engine, more: Partial<EngineRequest>) => {
      const batches = await run(engine, { ...messages(user('hi')), ...more });
      const thought = batches.flat().map((event) => (event.type === 'reasoning' ? event.text : ''));
      const { completionTokens, reasoningTokens } = lastUsage(batches)!.usage;
      return [thought.join(''), textOf(batches), completionTokens, reasoningTokens];
    };
    const fine = 'It is fine.';
    assert.deepEqual(await said(thinker, { effort: 'low' }), ['Let me see.', fine, 6, 3]);
    assert.deepEqual(await said(thinker, { effort: 'none' }), ['', fine, 3, 0]);
    // (4): hidden reasoning is in the tokens of the answer and nowhere else, also where it uses them up.
    assert.deepEqual(await said(thinker, { effort: 'none', reasoningForm: 'hidden' }), ['', fine, 6, 0]);
    assert.deepEqual(await said(thinker, { effort: 'none', reasoningForm: 'hidden', maxTokens: 4 }), ['', 'It', 4, 0]);
    assert.deepEqual(await said(thinker, { effort: 'low', reasoningForm: 'inline' }), [
      '',
      `<think>\nLet me see.\n</think>\n\n${fine}`,
      6,
      0,
    ]);
    assert.deepEqual(await said(thinker, { effort: 'low', reasoningForm: 'inline', maxTokens: 2 }), [
      '',
      '<think>\nLet me',
      2,
      0,
    ]);
    assert.deepEqual(
      await said(engineOf(script), { effort: 'none' }),
      ['Let me see.', fine, 6, 3],
      'it knows no efforts',
    );
  });

  it('refuses a prompt that does not fit', async () => {
    const { error, batches } = await failure(engineOf([{ say: [{ text: 'x' }], prompt_tokens: 14 }], 14));
    assert.equal(error.code, 'context_length_exceeded');
    assert.equal(error.extra['context_length_limit'], 14);
    assert.deepEqual(batches, []);
  });

  it('counts a prompt by its bytes', async () => {
    const engine = engineOf([{ say: [{ text: 'x' }] }]);
    const { signal } = new AbortController();
    const count = (more: Partial<EngineRequest>): Promise<number | undefined> =>
      engine.countTokens(engineRequest('', more), signal);
    assert.equal(await count(messages(user('12345'))), 4 + 2);
    assert.equal(await count(messages(user('1234'), assistant('é'), user(''))), 4 + 1 + 4 + 1 + 4);
    assert.equal(await count({ prompt: { type: 'token-ids', prompts: [[1, 2], [3]] } }), 3);
    const batches = await run(engine, messages(user('12345')));
    assert.equal(lastUsage(batches)?.usage.promptTokens, 6);
  });

  it('takes its time', async () => {
    const engine = engineOf([{ say: [{ text: 'a b c' }], first_token_ms: 40, pace_ms: 20 }]);
    const startMs = performance.now();
    const atMs: number[] = [];
    for await (const batch of pull(engine, engineRequest('hi'), new AbortController().signal)) {
      for (const event of batch) if (event.type === 'text') atMs.push(performance.now() - startMs);
    }
    assert.equal(atMs.length, 3);
    [40, 60, 80].forEach((dueMs, i) => assert.ok(atMs[i]! >= dueMs - 2, `token ${i} came at ${atMs[i]}`));
  });
});

describe('a script with a fault', () => {
  const say = [{ text: 'one two three' }];

  it('ends without a finish, or with a code, after a number of tokens', async () => {
    for (const [fault, code] of [
      [{ after_tokens: 2, type: 'cut' }, 'backend_http_error'],
      [{ after_tokens: 2, type: 'error', code: 'backend_timeout' }, 'backend_timeout'],
      [{ after_tokens: 2, type: 'error' }, 'backend_http_error'],
    ] as const) {
      const { error, batches } = await failure(engineOf([{ say, fault }]));
      assert.equal(error.code, code);
      assert.equal(textOf(batches), 'one two');
      assert.equal(finishOf(batches), undefined);
    }
  });

  it('fails before the first batch after no token', async () => {
    const { error, batches } = await failure(
      engineOf([{ say, fault: { after_tokens: 0, type: 'error', code: 'backend_overloaded' } }]),
    );
    assert.equal(error.code, 'backend_overloaded');
    assert.deepEqual(batches, []);
  });

  it('falls silent until it is aborted', async () => {
    const engine = engineOf([{ say, fault: { after_tokens: 1, type: 'hang' } }]);
    const abort = new AbortController();
    const iterator = pull(engine, engineRequest('hi'), abort.signal);
    assert.equal(textOf([(await iterator.next()).value ?? []]), 'one');
    const read = iterator.next();
    const reason = new Error('left');
    abort.abort(reason);
    await assert.rejects(read, (error) => error === reason);
  });

  it('reports wrong figures, which are not believed, or none, which are counted', async () => {
    const usageOf = async (usage: NonNullable<ScriptSettings['usage']>): Promise<unknown> =>
      lastUsage(await run(engineOf([{ say, usage, prompt_tokens: 9 }])));
    const right = { promptTokens: 9, cachedTokens: 0, completionTokens: 3, reasoningTokens: 0 };
    assert.deepEqual(await usageOf({ cached_tokens: 4 }), { type: 'usage', usage: { ...right, cachedTokens: 4 } });
    assert.deepEqual(await usageOf({ cached_tokens: 50, reasoning_tokens: 50 }), {
      type: 'usage',
      usage: right,
      counted: true,
    });
    assert.deepEqual(await usageOf({ completion_tokens: 40 }), {
      type: 'usage',
      usage: { ...right, completionTokens: 40 },
    });
    for (const wrong of [-1, 0.5, '3', 1e15]) {
      assert.deepEqual(await usageOf({ completion_tokens: wrong }), { type: 'usage', usage: right, counted: true });
    }
    const batches = await run(engineOf([{ say, usage: 'none', prompt_tokens: 9 }]));
    assert.deepEqual(batches[0]?.[0], { type: 'start', promptTokens: undefined });
    assert.deepEqual(lastUsage(batches), {
      type: 'usage',
      usage: { ...right, promptTokens: undefined },
      counted: true,
    });
  });
});
