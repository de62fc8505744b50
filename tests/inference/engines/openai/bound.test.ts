/** Answers are held against what their requests have bound them to, whatever the server was asked (specification §4.2.3). */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ebnfGrammar } from '../../../../src/inference/constraints/ebnf.ts';
import { printGbnf } from '../../../../src/inference/constraints/grammar.ts';
import { jsonSchemaGrammar } from '../../../../src/inference/constraints/json-schema.ts';
import { compileProgram } from '../../../../src/inference/constraints/program.ts';
import { regexGrammar } from '../../../../src/inference/constraints/regex.ts';
import { boundOf } from '../../../../src/inference/engines/openai/answer-guard.ts';
import { ConstraintTrust } from '../../../../src/inference/engines/openai/constraint-trust.ts';
import { flavorNames, type FlavorName } from '../../../../src/generation/flavor-names.ts';
import { flavors } from '../../../../src/inference/engines/openai/flavors/flavors.ts';
import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import type { BackendIncident, ReportedIncident } from '../../../../src/inference/engines/openai/incidents.ts';
import { ApiError } from '../../../../src/platform/errors.ts';
import type { Constraint, EngineConstraint, EngineRequest } from '../../../../src/generation/request.ts';
import {
  chatChunk,
  event,
  eventually,
  Upstream,
  usageChunk,
  type UpstreamExchange,
} from '../../../support/upstream.ts';
import { plainTokens } from '../../../support/token-controls.ts';
import { all, engineRequest, textOf } from '../contract.ts';
import { decode, recordedJson, recordedSettings, recording, type DecodeSettings } from './decoding.ts';

const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

function compiled(source: Constraint): EngineConstraint {
  const grammar =
    source.type === 'regex'
      ? regexGrammar(source.pattern, 'regex')
      : source.type === 'grammar'
        ? ebnfGrammar(source.text, 'ebnf')
        : jsonSchemaGrammar(source.type === 'json-schema' ? source.schema : { type: 'object' }, 'schema');
  return { source, gbnf: printGbnf(grammar), program: compileProgram(grammar) };
}
const yesOrNo = compiled({ type: 'regex', pattern: 'yes|no' });
const city = compiled({ type: 'json-schema', schema, name: 'x' });
const anObject = compiled({ type: 'json-object' });

/** What becomes of an answer of these pieces: its text, and what it fails with. */
function answered(
  more: Partial<EngineRequest>,
  deltas: readonly Readonly<Record<string, unknown>>[],
  finish: Readonly<Record<string, unknown>> = { finish_reason: 'stop' },
  flavor: FlavorName = 'vllm',
  settings: DecodeSettings = {},
): string {
  const request = engineRequest('hi', more);
  const choices = [...deltas.map((delta) => ({ index: 0, delta })), { index: 0, delta: {}, ...finish }];
  const stream = choices.map((choice) => `data: ${JSON.stringify({ choices: [choice] })}\n\n`).join('');
  const mayThink = settings.reasoningForm === 'inline';
  const { events, failure } = decode([Buffer.from(stream)], {
    bound: boundOf(request, flavors[flavor], mayThink),
    ...settings,
  });
  const text = events.map((each) => (each.type === 'text' ? each.text : '')).join('');
  const finished = events.find((each) => each.type === 'finish');
  return `${text} ${failure ?? finished?.reason}`;
}
const says = (...texts: readonly string[]) => texts.map((content) => ({ content }));

describe('the text of an answer', () => {
  const bound = { constraint: yesOrNo };
  it('that matches passes', () => assert.equal(answered(bound, says('y', 'es')), 'yes stop'));
  it('that leaves its form fails, before what left it is shown', () => {
    assert.equal(answered(bound, says('-10000')), ' UnboundFault');
    assert.equal(answered(bound, says('y', 'es', '!')), 'yes UnboundFault');
  });
  it('that ends too early fails', () => {
    assert.equal(answered(bound, []), ' UnboundFault');
    assert.equal(answered(bound, says('ye')), 'ye UnboundFault');
    assert.equal(answered(bound, [{ reasoning_content: 'Hm.' }]), ' UnboundFault', 'inside its thought');
  });
  it('that a limit has cut is the beginning of one', () => {
    assert.equal(answered(bound, says('ye'), { finish_reason: 'length' }), 'ye length');
    assert.equal(answered(bound, says('yq'), { finish_reason: 'length' }), ' UnboundFault');
    const accents = { constraint: compiled({ type: 'regex', pattern: 'é+' }) };
    assert.equal(
      answered(accents, says('é\ufffd'), { finish_reason: 'length' }),
      'é\ufffd length',
      'in half a character',
    );
    assert.equal(answered(accents, says('é\ufffd')), 'é\ufffd UnboundFault');
  });
  it('that a stop sequence has ended is the beginning of one, where the server says so', () => {
    const stopped = { ...bound, stop: ['s'] };
    assert.equal(answered(stopped, says('ye'), { finish_reason: 'stop', stop_reason: 's' }), 'ye stop');
    assert.equal(answered(stopped, says('ye'), { finish_reason: 'stop', stop_reason: null }), 'ye UnboundFault');
    // These do not say what has ended it.
    for (const flavor of ['llama-server', 'openai'] as const)
      assert.equal(answered({ ...stopped, constraint: anObject }, says('{'), undefined, flavor), '{ stop');
  });
  it('is distinguished from thoughts, wherever these stand', () => {
    const thought = [{ reasoning_content: 'Well…' }, ...says('yes')];
    assert.equal(answered(bound, thought), 'yes stop');
    const tagged = says('<think>\nWell…', '</think>\n\n', 'ye', 's');
    assert.equal(answered(bound, tagged, undefined, 'vllm', { splitsThinking: true }), 'yes stop');
    assert.match(answered(bound, tagged, undefined, 'vllm', { reasoningForm: 'inline' }), /yes stop$/);
    const wrong = says('<think>\nWell…', '</think>\n\n', 'ya');
    assert.match(answered(bound, wrong, undefined, 'vllm', { reasoningForm: 'inline' }), /UnboundFault$/);
    // A reader of thoughts takes blanks behind them for layout.
    const blank = { constraint: compiled({ type: 'regex', pattern: '\\n\\nyes' }) };
    assert.equal(answered(blank, thought), 'yes stop');
  });
  it('may be refused by the model, or cut for what it says', () => {
    assert.equal(answered({ constraint: city }, [{ refusal: 'No.' }], undefined, 'openai'), 'No. stop');
    const cut = answered({ constraint: city }, says('{"ci'), { finish_reason: 'content_filter' }, 'openai');
    assert.equal(cut, '{"ci stop');
  });
  it('is held against JSON alone where the server has converted the schema itself', () => {
    const answer = '{\r\n   "city"  : "Paris", "more": -0.50E+1 }\n';
    assert.equal(answered({ constraint: city }, says(answer), undefined, 'openai'), `${answer} stop`);
    assert.equal(answered({ constraint: city }, says(answer), undefined, 'vllm'), ' UnboundFault');
    assert.equal(
      answered({ constraint: city, effort: 'low' }, says(answer), undefined, 'llama-server'),
      `${answer} stop`,
    );
    for (const flavor of flavorNames) {
      assert.equal(answered({ constraint: city }, says('Paris'), undefined, flavor), ' UnboundFault');
      assert.equal(answered({ constraint: anObject }, says('[1]'), undefined, flavor), ' UnboundFault');
    }
  });
});

describe('a forced call', () => {
  const weather = { type: 'function', name: 'f', description: undefined, parameters: schema };
  const forced = { tools: [weather], toolChoice: { type: 'required' } } as const;
  const call = (...pieces: readonly string[]) =>
    pieces.map((piece, i) => ({
      tool_calls: [
        {
          index: 0,
          ...(i === 0 ? { id: 'a' } : {}),
          function: { ...(i === 0 ? { name: 'f' } : {}), arguments: piece },
        },
      ],
    }));
  it('has an object for arguments', () => {
    for (const flavor of flavorNames) {
      assert.equal(answered(forced, call('{"city"', ': "Paris"}'), { finish_reason: 'stop' }, flavor), ' tool-calls');
      assert.equal(answered(forced, call('', '"Paris"'), { finish_reason: 'stop' }, flavor), ' UnboundFault');
      assert.equal(answered(forced, call('{"city"'), { finish_reason: 'tool_calls' }, flavor), ' UnboundFault');
      assert.equal(answered(forced, call('{"city"'), { finish_reason: 'length' }, flavor), ' length');
    }
  });
  it('counts what its parser keeps back, so that a client that leaves pays for it', () => {
    const usage = (completion_tokens: number) => ({ usage: { prompt_tokens: 7, completion_tokens } });
    const chunks = [
      { choices: [{ index: 0, delta: { role: 'assistant', content: '' } }], ...usage(0) },
      { choices: [{ index: 0, delta: {}, token_ids: [5] }], ...usage(1) },
      { choices: [{ index: 0, delta: {}, token_ids: [6, 7] }], ...usage(3) },
    ];
    const { events } = decode(chunks.map((chunk) => Buffer.from(`data: ${JSON.stringify(chunk)}\n\n`)));
    assert.deepEqual(
      events.map((each) => (each.type === 'usage' ? each.usage.completionTokens : each.type)),
      ['start', 1, 3],
    );
  });
  it('is made', () => {
    assert.equal(answered(forced, says('Hello')), 'Hello UnboundFault');
    assert.equal(answered(forced, says('Hello'), { finish_reason: 'length' }), 'Hello length');
    assert.equal(answered({ ...forced, toolChoice: { type: 'auto' } }, says('Hello')), 'Hello stop');
  });
});

describe('what a real vLLM 0.32 has answered', () => {
  const weather = { type: 'function', name: 'weather', description: undefined, parameters: {} };
  const forced = { tools: [weather], toolChoice: { type: 'required' } } as const;
  const slashes = { constraint: compiled({ type: 'regex', pattern: '[/a]{4}' }) };
  const table: readonly (readonly [name: string, Partial<EngineRequest>, failure: string | undefined])[] = [
    ['grammar', slashes, undefined],
    ['grammar-hex', slashes, 'UnboundFault'],
    ['ignore-eos', { constraint: yesOrNo }, 'UnboundFault'],
    ['forced-strict', forced, undefined],
    ['forced-loose', forced, 'UnboundFault'],
    ['forced-cut', forced, undefined],
  ];
  for (const [name, more, failure] of table) {
    it(`${name}: ${failure ?? 'as it was bound to be'}`, () => {
      const bound = boundOf(engineRequest('hi', more), flavors.vllm, false);
      const found = decode([recording(`${name}.sse`, 'vllm-0.32')], { ...recordedSettings(name, 'vllm-0.32'), bound });
      assert.equal(found.failure, failure);
    });
  }

  for (const [name, sampling, code, param] of [
    ['out-of-vocabulary', {}, 'unsupported_value', 'logit_bias'],
    ['top-p-zero', { topP: 0.5 }, 'unsupported_value', 'top_p'],
    ['context-overflow', {}, 'context_length_exceeded', undefined],
  ] as const) {
    it(`${name}: the client's 400`, async (t) => {
      const { status, body } = recordedJson(`${name}.json`, 'vllm-0.32');
      const upstream = await Upstream.start((exchange) => exchange.json(status, body));
      const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'vllm' });
      t.after(() => Promise.all([engine.close(), upstream.close()]));
      const request = engineRequest('hi');
      const asked = { ...request, sampling: { ...request.sampling, ...sampling } };
      await assert.rejects(all(engine, asked, new AbortController().signal), (error: unknown) => {
        assert.ok(error instanceof ApiError);
        assert.deepEqual([error.status, error.code, error.param], [400, code, param]);
        return true;
      });
    });
  }
});

describe('what cannot be bound is refused', () => {
  it('ends that a form does not let', () => {
    for (const flavor of ['vllm', 'sglang', 'llama-server'] as const) {
      const engine = createOpenAiEngine({ name: 'm', url: 'http://127.0.0.1:1/v1', flavor });
      const prompt = { type: 'texts', prompts: ['x'] } as const;
      for (const [tokens, param] of [
        [{ ignoresEnd: true }, 'ignore_eos'],
        [{ tokensMin: 5 }, 'min_tokens'],
      ] as const) {
        const request = engineRequest('', { prompt, constraint: yesOrNo, tokens: { ...plainTokens, ...tokens } });
        assert.deepEqual(
          [engine.refusal?.(request)?.code, engine.refusal?.(request)?.param],
          ['unsupported_parameter', param],
        );
      }
      assert.equal(engine.refusal?.(engineRequest('', { prompt, constraint: yesOrNo })), undefined);
      void engine.close();
    }
  });
  it('a continued text of a model that reasons on vLLM, whose parser waits for the end of a thought', () => {
    const prompt = { type: 'texts', prompts: ['x'] } as const;
    const request = engineRequest('', { prompt, constraint: yesOrNo });
    const refusals = ['vllm', 'sglang', 'llama-server'].map((flavor) => {
      const engine = createOpenAiEngine({
        name: 'm',
        url: 'http://127.0.0.1:1/v1',
        flavor: flavor as FlavorName,
        reasons: true,
      });
      void engine.close();
      assert.equal(engine.refusal?.(engineRequest('hi', { constraint: yesOrNo })), undefined);
      return engine.refusal?.(request)?.code;
    });
    assert.deepEqual(refusals, ['unsupported_regex', undefined, undefined]);
  });
});

describe('a server that ignores a constraint', { timeout: 60_000 }, () => {
  const never = new AbortController().signal;
  /** Keeps to constraints or not, as `keeps` says at the time. */
  const answer = (exchange: UpstreamExchange, text: string): void => {
    exchange.events();
    exchange.chunk(
      chatChunk({ content: text }) +
        chatChunk({}, 'stop') +
        usageChunk({ prompt_tokens: 7, completion_tokens: 2 }) +
        event('[DONE]'),
    );
    exchange.endChunks();
  };
  const isLook = (exchange: UpstreamExchange): boolean => exchange.body.includes('qzjx');

  it('gets no more of that kind, and the log says so', async (t) => {
    const reported: ReportedIncident[] = [];
    const upstream = await Upstream.start((exchange) => answer(exchange, 'Blue.'));
    const engine = createOpenAiEngine({
      name: 'm',
      url: upstream.url,
      flavor: 'vllm',
      onIncident: (incident) => reported.push(incident),
    });
    t.after(() => Promise.all([engine.close(), upstream.close()]));
    const bound = engineRequest('hi', { constraint: yesOrNo });
    await assert.rejects(all(engine, bound, never), (error: unknown) => {
      assert.ok(error instanceof ApiError);
      assert.deepEqual([error.code, error.status], ['backend_http_error', 502]);
      return true;
    });
    const refusal = engine.refusal?.(bound);
    assert.deepEqual([refusal?.code, refusal?.status, refusal?.param], ['unsupported_regex', 400, 'regex']);
    await eventually('the server was asked for a small answer', () => upstream.exchanges.some(isLook));
    assert.ok(engine.refusal?.(bound) !== undefined, 'which was not bound either');
    assert.deepEqual(reported, [
      { incident: 'constraint_ignored', status: null, cause: 'regex on chat completions', times: 1 },
    ]);
    // Others go on.
    assert.equal(engine.refusal?.(engineRequest('hi', { constraint: anObject })), undefined);
    assert.equal(
      engine.refusal?.(engineRequest('', { prompt: { type: 'texts', prompts: ['x'] }, constraint: yesOrNo })),
      undefined,
    );
    assert.equal(textOf(await all(engine, engineRequest('hi'), never)), 'Blue.');
  });

  it('gets them again when a small answer is as it was bound to be', async (t) => {
    const reported: ReportedIncident[] = [];
    const upstream = await Upstream.start((exchange) => answer(exchange, isLook(exchange) ? 'qzjx' : 'Blue.'));
    const engine = createOpenAiEngine({
      name: 'm',
      url: upstream.url,
      flavor: 'vllm',
      onIncident: (incident) => reported.push(incident),
    });
    t.after(() => Promise.all([engine.close(), upstream.close()]));
    const bound = engineRequest('hi', { constraint: yesOrNo });
    await assert.rejects(all(engine, bound, never), { code: 'backend_http_error' });
    await eventually('it is believed again', () => engine.refusal?.(bound) === undefined);
    assert.deepEqual(
      reported.map(({ incident }) => incident),
      ['constraint_ignored', 'constraint_kept_again'],
    );
    // One client's odd grammar does not take it away from the others again and again.
    await assert.rejects(all(engine, bound, never), { code: 'backend_http_error' });
    assert.equal(engine.refusal?.(bound), undefined);
    assert.equal(upstream.exchanges.filter(isLook).length, 1);
  });

  it('is not said to when a model ended inside its thought, or a forced call was none', async (t) => {
    const reported: ReportedIncident[] = [];
    const upstream = await Upstream.start((exchange) => {
      exchange.events();
      exchange.chunk(chatChunk({ reasoning_content: 'Hm.' }) + chatChunk({}, 'stop'));
      exchange.endChunks();
    });
    const engine = createOpenAiEngine({
      name: 'm',
      url: upstream.url,
      flavor: 'vllm',
      onIncident: (incident) => reported.push(incident),
    });
    t.after(() => Promise.all([engine.close(), upstream.close()]));
    const bound = engineRequest('hi', { constraint: yesOrNo });
    await assert.rejects(all(engine, bound, never), { code: 'backend_http_error' });
    assert.equal(engine.refusal?.(bound), undefined);
    assert.deepEqual(
      reported.map(({ incident, cause }) => [incident, cause]),
      [['constraint_not_kept', 'the text ended before its constraint was complete']],
    );
  });

  it('is asked again after growing pauses, until it closes', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const reported: BackendIncident[] = [];
    let looks = 0;
    const trust = new ConstraintTrust({
      look: () => Promise.resolve(++looks === 4 ? true : undefined),
      onIncident: (incident) => reported.push(incident),
      now: () => 0,
    });
    const kind = { type: 'grammar', isChat: true } as const;
    const settled = async (): Promise<void> => {
      for (let i = 0; i < 5; i++) await Promise.resolve();
    };
    trust.ignored(kind);
    trust.ignored(kind);
    for (const pauseMs of [60_000, 120_000, 240_000]) {
      await settled();
      assert.ok(trust.isIgnored(kind));
      t.mock.timers.tick(pauseMs - 1);
      const before = looks;
      t.mock.timers.tick(1);
      assert.equal(looks, before + 1);
    }
    await settled();
    assert.ok(!trust.isIgnored(kind));
    assert.deepEqual(
      reported.map(({ incident }) => incident),
      ['constraint_ignored', 'constraint_not_kept', 'constraint_kept_again'],
    );
    trust.close();
  });
});

describe('what a client has done wrong is said to it, §7.2', () => {
  const bodies: readonly (readonly [FlavorName, unknown, Partial<EngineRequest>, string | undefined])[] = [
    [
      'vllm',
      vllmError('top_k must be 0 (disable), or at least 1 (parameter=top_k, value=-7)', 'top_k'),
      withTopK(5),
      'top_k',
    ],
    [
      'vllm',
      vllmError('token_id(s) [99999999] in logit_bias contain out-of-vocab token ids. Vocabulary size: 49152'),
      {},
      'logit_bias',
    ],
    [
      'vllm',
      vllmError('token_id(s) [99999999] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: 49152'),
      {},
      'stop_token_ids',
    ],
    [
      'openai',
      { error: { message: 'No.', type: 'invalid_request_error', param: 'tools[0].function.name', code: null } },
      {
        tools: [{ type: 'function', name: 'f', description: undefined, parameters: undefined }],
        toolChoice: { type: 'auto' },
      },
      'tools',
    ],
    // What the client has not sent is not its fault.
    ['vllm', vllmError('top_k is odd', 'top_k'), {}, undefined],
    ['vllm', vllmError('cache_salt is odd', 'cache_salt'), {}, undefined],
  ];
  for (const [flavor, body, more, param] of bodies) {
    it(`${flavor}: ${param ?? 'not the client'}: ${JSON.stringify(body)}`, async () => {
      const reported: ReportedIncident[] = [];
      const upstream = await Upstream.start((exchange) => exchange.json(400, body));
      const engine = createOpenAiEngine({
        name: 'm',
        url: upstream.url,
        flavor,
        onIncident: (incident) => reported.push(incident),
      });
      await assert.rejects(all(engine, engineRequest('hi', more), new AbortController().signal), (error: unknown) => {
        assert.ok(error instanceof ApiError);
        assert.deepEqual(
          [error.code, error.param],
          param === undefined ? ['backend_http_error', undefined] : ['unsupported_value', param],
        );
        assert.equal(reported.length, param === undefined ? 1 : 0, 'the server is not blamed for it');
        return true;
      });
      await engine.close();
      await upstream.close();
    });
  }
});

function vllmError(message: string, param: string | null = null): unknown {
  return { error: { message, type: 'BadRequestError', param, code: 400 } };
}

function withTopK(topK: number): Partial<EngineRequest> {
  return { sampling: { ...engineRequest('hi').sampling, topK } };
}
