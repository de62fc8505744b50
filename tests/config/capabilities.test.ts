import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import type { Capabilities } from '../../src/catalog/card-flags.ts';
import { capabilitiesFor } from '../../src/catalog/model.ts';
import { readEnvironment } from '../../src/config/environment.ts';
import { ConfigError } from '../../src/config/problem.ts';
import { readConfig } from '../../src/config/read.ts';
import type { ModelConfig } from '../../src/config/config.ts';
import { fullCapabilities } from '../inference/pipeline/models.ts';

/** What the file makes of a model's capabilities (specification §2.3, §4.2.3(5), §4.2.5; contracts decisions 20 and 25). */
const options = { directory: '/srv', environment: readEnvironment({ HOME: '/home/somebody' }) };

const backends = {
  llama: `{ engine: llama, sources: [x.gguf], sha256: ${'ab'.repeat(32)} }`,
  scripted: '{ engine: scripted, scripts: [{}] }',
  vllm: '{ engine: openai, flavor: vllm, url: "http://a/v1" }',
  sglang: '{ engine: openai, flavor: sglang, url: "http://a/v1" }',
  'llama-server': '{ engine: openai, flavor: llama-server, url: "http://a/v1" }',
  openai: '{ engine: openai, flavor: openai, url: "http://b/v1" }',
} as const;
type Kind = keyof typeof backends;
const kinds = Object.keys(backends) as Kind[];

const zdr = (kind: Kind): string => backends[kind].replace(' }', ', zdr: true }');
const fileOf = (lines: string, ...list: readonly string[]): string =>
  `models:\n  - id: a\n    context_length: 100\n    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }\n${lines === '' ? '' : `    ${lines.replaceAll('\n', '\n    ')}\n`}    backends: [${list.join(', ')}]\n`;
const read = (lines: string, ...list: readonly string[]): ModelConfig =>
  readConfig(fileOf(lines, ...list), options).models[0]!;

const trueFlags = ({ chat, vision, tools, reasoning }: Capabilities): string[] =>
  Object.entries({ vision, reasoning, callsTools: tools, ...chat })
    .filter(([, value]) => value)
    .map(([name]) => name);
const everyFlag = trueFlags(fullCapabilities);
const without = (...names: readonly string[]): string[] => everyFlag.filter((name) => !names.includes(name));

/** What a card says when the file says nothing. */
const byDefault: Readonly<Record<Kind, readonly string[]>> = {
  llama: without('vision', 'reasoning'),
  scripted: without('vision', 'reasoning', 'logprobs', 'logitBias'),
  vllm: without('vision', 'reasoning'),
  sglang: without('vision', 'reasoning'),
  'llama-server': without('vision', 'reasoning'),
  openai: without('vision', 'reasoning', 'regex', 'grammar'),
};

test('what the file does not say is what every backend can do', () => {
  for (const kind of kinds) assert.deepEqual(trueFlags(read('', backends[kind]).capabilities), byDefault[kind], kind);
  fc.assert(
    fc.property(fc.uniqueArray(fc.constantFrom(...kinds), { minLength: 1 }), (chosen) => {
      const list = chosen.map((kind, index) => backends[kind].replace('{ ', `{ name: b${index}, `));
      const expected = everyFlag.filter((name) => chosen.every((kind) => byDefault[kind].includes(name)));
      assert.deepEqual(trueFlags(read('', ...list).capabilities), expected);
    }),
  );
});

test('the other API families promise what the model can do, and the file takes away', () => {
  const { messages: all } = fullCapabilities;
  const familiesOf = (lines: string) => {
    const { responses, messages } = read(lines, backends.vllm).capabilities;
    return { responses, messages };
  };
  const { responses } = fullCapabilities;
  // Images and reasoning depend on the model that a server has.
  const byDefaultThere = { ...all, vision: false, reasoning: false };
  assert.deepEqual(familiesOf(''), { responses, messages: byDefaultThere });
  assert.deepEqual(familiesOf('capabilities: { vision: true, reasoning: true }'), { responses, messages: all });
  assert.deepEqual(familiesOf('capabilities: { messages: { tools: false } }').messages, {
    ...byDefaultThere,
    tools: false,
    toolStreaming: false,
  });
  assert.deepEqual(familiesOf('capabilities: { responses: { text_format: [text, json_object] } }').responses, {
    ...responses,
    textFormats: ['text', 'json_object'],
    rawJsonSchemaText: false,
  });
  const none = familiesOf('capabilities: { responses: { supported: false }, messages: { supported: false } }');
  assert.deepEqual(
    [...Object.values(none.responses), ...Object.values(none.messages)].filter((flag) => flag === true),
    [],
  );
  assert.deepEqual(none.responses.textFormats, []);
});

test('the file takes flags away, with what rests on them', () => {
  const cases: readonly (readonly [string, readonly string[]])[] = [
    ['capabilities: { tools: false }', ['callsTools', 'tools', 'toolStreaming', 'toolsWithResponseFormat']],
    ['capabilities: { chat_completions: { tool_streaming: false } }', ['toolStreaming']],
    ['capabilities: { chat_completions: { streaming: false } }', ['streaming', 'toolStreaming']],
    ['capabilities: { chat_completions: { n: false, regex: false } }', ['n', 'regex']],
    [
      'capabilities: { chat_completions: { json_object: false, json_schema: false, grammar: false } }',
      ['jsonObject', 'jsonSchema', 'grammar', 'toolsWithResponseFormat'],
    ],
    ['capabilities: { logprobs: false, logit_bias: false }', ['logprobs', 'logitBias']],
  ];
  for (const [lines, gone] of cases)
    assert.deepEqual(
      trueFlags(read(lines, backends.vllm).capabilities),
      byDefault.vllm.filter((name) => !gone.includes(name)),
      lines,
    );
  const unsupported = trueFlags(
    read('capabilities: { chat_completions: { supported: false } }', backends.vllm).capabilities,
  );
  assert.deepEqual(unsupported, ['callsTools', 'logprobs', 'logitBias']);
});

test('the file asserts what depends on the model', () => {
  const flags = trueFlags(read('capabilities: { vision: true, reasoning: true }', backends.vllm).capabilities);
  assert.deepEqual(flags, everyFlag);
});

test('§4.2.3(5): regex only under zero data retention, because only that backend can do it, or because the file says so', () => {
  const cases = [
    read('', backends.openai, zdr('vllm')),
    read('capabilities: { chat_completions: { regex: false } }\nzdr: { regex: true }', zdr('vllm')),
  ];
  for (const model of cases) {
    assert.deepEqual([model.capabilities.zdr, model.capabilities.chat.regex], [true, false]);
    assert.deepEqual(
      [capabilitiesFor(model, false).chat.regex, capabilitiesFor(model, true).chat.regex],
      [false, true],
    );
  }
  // What is taken away for all requests stays away.
  const { zdrCapabilities } = read('capabilities: { tools: false }\nzdr: { n: false }', zdr('vllm'));
  assert.deepEqual(
    [zdrCapabilities.tools, zdrCapabilities.chat.tools, zdrCapabilities.chat.n, zdrCapabilities.chat.regex],
    [false, false, false, true],
  );
});

test('zero data retention is offered where a backend is marked, unless the file says no', () => {
  assert.equal(read('', backends.vllm).capabilities.zdr, false);
  for (const kind of kinds) assert.equal(read('', zdr(kind)).capabilities.zdr, true, kind);
  assert.equal(read('zdr: { supported: false }', zdr('vllm')).capabilities.zdr, false);
  const same = read('', zdr('vllm'));
  assert.deepEqual(same.capabilities, same.zdrCapabilities);
});

test('§4.2.5: how a model reasons', () => {
  const thinking = (lines: string, kind: Kind = 'llama') => {
    const { reasoning, efforts, defaultEffort, ...rest } = read(lines, backends[kind]).capabilities;
    const { reasoningRoomTokens, hidesReasoning, inlinesReasoning, preservesThinking } = rest;
    return [
      reasoning,
      efforts.join(' '),
      defaultEffort,
      reasoningRoomTokens,
      hidesReasoning,
      inlinesReasoning,
      preservesThinking,
    ];
  };
  const cases: readonly (readonly [string, readonly unknown[]])[] = [
    ['', [false, 'none', 'none', 0, false, false, false]],
    ['capabilities: { reasoning: true }', [true, 'none medium', 'medium', 0, false, false, false]],
    [
      'capabilities: { reasoning: true }\nreasoning: { room_tokens: 24576 }',
      [true, 'none medium', 'medium', 24_576, false, false, false],
    ],
    // In the order of distances, whatever the order of the file.
    ['reasoning: { efforts: [high, none, low, max] }', [true, 'none low high max', 'low', 0, false, false, false]],
    ['reasoning: { efforts: [low, high], default: high }', [true, 'low high', 'high', 0, false, false, false]],
    [
      'capabilities: { reasoning: true }\nreasoning: { default: none }',
      [true, 'none medium', 'none', 0, false, false, false],
    ],
    ['reasoning: { hides: true }', [false, 'none', 'none', 0, true, false, false]],
    [
      'capabilities: { reasoning: false }\nreasoning: { hides: true, room_tokens: 100 }',
      [false, 'none', 'none', 100, true, false, false],
    ],
    // §4.2.5(1): not apart from the answer, but the controls are the same.
    ['reasoning: { inlines: true }', [false, 'none medium', 'medium', 0, false, true, false]],
    ['reasoning: { efforts: [none, high], preserves: true }', [true, 'none high', 'high', 0, false, false, true]],
  ];
  for (const [lines, expected] of cases) assert.deepEqual(thinking(lines), expected, lines);
});

/** With a mark (‸) at the place that is named. */
const refused: readonly (readonly [string, RegExp, ...string[]])[] = [
  ['capabilities: { vision: ‸true }', /the backend "llama" \(llama\) cannot do that.*remove this line/, backends.llama],
  [
    'capabilities: { chat_completions: { regex: ‸true } }',
    /the backend "openai" \(openai, flavor openai\) cannot do that, so requests would not get what the card promises.*remove this line$/,
    backends.openai,
  ],
  [
    'capabilities: { chat_completions: { grammar: ‸true } }',
    /"openai-1".*or write it under zdr when only the backends marked zdr can/,
    backends.openai,
    zdr('vllm'),
  ],
  ['zdr: { regex: ‸true }', /"openai-2" \(openai, flavor openai\) cannot do that/, backends.vllm, zdr('openai')],
  ['zdr: { regex: ‸true }', /no backend of this model is marked zdr.*write zdr: true at a backend/, backends.vllm],
  ['zdr: { supported: ‸true }', /no backend of this model is marked zdr/, backends.vllm],
  [
    'capabilities: { tools: false, chat_completions: { tools: ‸true } }',
    /tools requires tools, which is false here/,
    backends.vllm,
  ],
  [
    'capabilities: { chat_completions: { streaming: false, tool_streaming: ‸true } }',
    /tool_streaming requires chat_completions.streaming/,
    backends.vllm,
  ],
  [
    'capabilities: { messages: { vision: ‸true } }',
    /vision requires a capability that the model does not have/,
    backends.vllm,
  ],
  [
    'capabilities: { responses: { supported: false, text_format: ‸[text] } }',
    /text_format requires responses.supported, which is false here/,
    backends.vllm,
  ],
  ['reasoning: { efforts: ‸[] }', /has 0 entries, but needs at least 1/, backends.vllm],
  ['reasoning: { efforts: [low, ‸minimal] }', /must be none, low, medium, high, xhigh or max/, backends.vllm],
  ['reasoning: { efforts: ‸[low, low] }', /listed twice/, backends.vllm],
  ['reasoning: { efforts: [none, low], default: ‸high }', /high is not among the efforts \(none, low\)/, backends.vllm],
  ['reasoning: { room_tokens: ‸24577 }', /from 0 to 24576/, backends.vllm],
  ['reasoning: { efforts: [low], hides: ‸true }', /effort none, which is not among the efforts/, backends.vllm],
  [
    'capabilities: { reasoning: ‸true }\nreasoning: { inlines: true }',
    /reasoning\.inlines says that it is not; remove one of the two/,
    backends.vllm,
  ],
  [
    'capabilities: { reasoning: false }\nreasoning: { efforts: ‸[none, low] }',
    /efforts requires capabilities.reasoning, which is false/,
    backends.vllm,
  ],
  ['reasoning: { efforts: [none, low], preserves: ‸true }', /cannot take reasoning of earlier turns/, backends.openai],
  ['reasoning: { preserves: ‸true }', /preserves requires capabilities.reasoning/, backends.vllm],
  ['capabilities: { chat_completions: { ‸regexp: true } }', /did you mean "regex"\?/, backends.vllm],
];

test('what cannot be kept is refused once, with its place and what repairs it', () => {
  for (const [marked, expected, ...list] of refused) {
    const text = fileOf(marked, ...list);
    const before = text.slice(0, text.indexOf('‸'));
    const line = before.split('\n').length;
    const column = before.length - before.lastIndexOf('\n');
    assert.throws(
      () => readConfig(text.replace('‸', ''), options),
      (error) => {
        assert.ok(error instanceof ConfigError);
        assert.equal(error.problems.length, 1, `${marked}\n${error.message}`);
        const [problem] = error.problems;
        assert.equal(problem?.where, `tokenhouse.yaml:${line}:${column}`, marked);
        assert.match(problem.what, expected, marked);
        return true;
      },
    );
  }
});

test('whatever flags are written, a card that is accepted promises nothing that a backend of its partition cannot do', () => {
  const names = ['json_object', 'json_schema', 'regex', 'grammar', 'n', 'streaming', 'tool_streaming'] as const;
  const words: Readonly<Record<(typeof names)[number], keyof Capabilities['chat']>> = {
    json_object: 'jsonObject',
    json_schema: 'jsonSchema',
    regex: 'regex',
    grammar: 'grammar',
    n: 'n',
    streaming: 'streaming',
    tool_streaming: 'toolStreaming',
  };
  const flags = fc.dictionary(fc.constantFrom(...names), fc.boolean());
  const chosen = fc.array(fc.tuple(fc.constantFrom(...kinds), fc.boolean()), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(flags, flags, chosen, (ofAll, ofZdr, list) => {
      const lines = `capabilities: { chat_completions: ${JSON.stringify(ofAll)} }\nzdr: ${JSON.stringify(ofZdr)}`;
      let model: ModelConfig;
      try {
        model = read(
          lines,
          ...list.map(([kind, isZdr], at) => (isZdr ? zdr(kind) : backends[kind]).replace('{ ', `{ name: b${at}, `)),
        );
      } catch (error) {
        assert.ok(error instanceof ConfigError);
        return;
      }
      for (const isZdr of [false, true]) {
        const members = list.filter(([, marked]) => !isZdr || marked);
        if (members.length === 0) continue;
        const { chat } = capabilitiesFor(model, isZdr);
        for (const name of names) {
          const written = isZdr ? (ofZdr[name] ?? ofAll[name]) : ofAll[name];
          if (written === false) assert.equal(chat[words[name]], false, `${name} was taken away`);
          if (chat[words[name]])
            for (const [kind] of members) assert.ok(byDefault[kind].includes(words[name]), `${kind} cannot ${name}`);
        }
      }
    }),
  );
});

test('a model that measures writes nothing, and says neither what its backends cannot do', () => {
  const embeds = 'capabilities: { embeddings: { supported: true, dimensions: true } }';
  for (const kind of kinds) {
    const { embeddings, chat, responses, messages, tools } = read(embeds, backends[kind]).capabilities;
    assert.deepEqual(embeddings, { supported: true, dimensions: true }, kind);
    assert.deepEqual([chat.supported, responses.supported, messages.supported, tools], Array(4).fill(false), kind);
  }
  const refused = (lines: string, kind: Kind, what: RegExp): void =>
    assert.throws(() => read(lines, backends[kind]), what);
  const both = 'capabilities: { embeddings: { supported: true }, rerank: { supported: true } }';
  refused(both, 'llama', /either to embed or to rank/);
  assert.ok(read(both, backends.vllm).capabilities.rerank.supported);
  refused('capabilities: { rerank: { supported: true } }', 'openai', /cannot do that/);
  refused('capabilities: { embeddings: { dimensions: true } }', 'vllm', /requires embeddings.supported/);
  refused(
    'capabilities: { embeddings: { supported: true }, chat_completions: { supported: true } }',
    'vllm',
    /generates no text/,
  );
});
