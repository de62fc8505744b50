import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Message, Tool } from '../../../src/generation/request.ts';
import { ChatTemplate } from '../../../src/inference/engines/llama/chat-template.ts';
import { OutputParser } from '../../../src/inference/output-parsers/output-parser.ts';

const folder = process.env['CHAT_TEMPLATES'];
assert.ok(folder !== undefined, 'run it with: npm run suite templates');

/** A text with quotes, a line break and other letters, a nested object, an empty list and a word. */
const args = { text: 'A "q" it\'s\nnew ü 😀', nested: { n: ['x', {}], m: [1.5, true] }, empty: [], flag: true };
const parameters = {
  type: 'object',
  properties: {
    text: { type: 'string', description: '' },
    nested: { type: 'object', description: '', properties: {} },
    // Of a type that every template can print: for an array @huggingface/jinja takes `items` for a method.
    empty: { type: 'number', description: '' },
    flag: { type: 'boolean', description: '' },
  },
  required: ['text'],
};
const tools: readonly Tool[] = [
  { type: 'function', name: 'get_it', description: 'Gets it.', parameters },
  { type: 'function', name: 'now', description: 'The time.', parameters: { type: 'object', properties: {} } },
];
const calls = [
  { id: 'call_1', name: 'get_it', arguments: JSON.stringify(args) },
  { id: 'call_2', name: 'now', arguments: '{}' },
];

/**
 * What becomes of each template: how its calls are written (`json`, `tagged` or `code`), after `+` if its prompt has to describe that,
 * `named` if it shows none; or no tools. Of the last, @huggingface/jinja cannot render those with a star.
 */
const outcomes: Readonly<Record<string, string>> = {
  'Apertus-8B-Instruct': 'json',
  'Apriel-1.6-15b-Thinker-fixed': 'no tools*',
  'Bielik-11B-v3.0-Instruct': 'json',
  'ByteDance-Seed-OSS': 'no tools*',
  Cohere2MoE: 'json',
  'CohereForAI-c4ai-command-r-plus-tool_use': 'no tools',
  'CohereForAI-c4ai-command-r7b-12-2024-tool_use': 'json',
  'GLM-4.6': 'tagged',
  'GLM-4.7-Flash': 'tagged',
  'GigaChat3-10B-A1.8B': 'no tools',
  'GigaChat3.1-10B-A1.8B': 'json',
  'HuggingFaceTB-SmolLM3-3B': '+ json',
  'Kimi-K2-Instruct': 'no tools*',
  'Kimi-K2-Thinking': 'no tools*',
  'Kimi-K3': 'no tools',
  'LFM2-8B-A1B': 'code, named',
  'LFM2.5-8B-A1B': 'code',
  'LFM2.5-Instruct': 'code, named',
  'MiMo-VL': 'json',
  'MiniMax-M1': 'json',
  'MiniMax-M2': 'tagged',
  'MiniMax-M3': 'no tools',
  'Mistral-Small-3.2-24B-Instruct-2506': 'json',
  'NVIDIA-Nemotron-3-Nano-30B-A3B-BF16': 'tagged',
  'NVIDIA-Nemotron-Nano-v2': 'json',
  'NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use': 'json',
  'NousResearch-Hermes-3-Llama-3.1-8B-tool_use': 'json',
  'Qwen-QwQ-32B': 'json',
  'Qwen-Qwen2.5-7B-Instruct': 'json',
  'Qwen-Qwen3-0.6B': 'json',
  'Qwen3-Coder': 'tagged',
  'Qwen3.5-4B': 'tagged',
  'Reka-Edge': '+ json',
  'Spark2.5': 'tagged',
  'StepFun3.5-Flash': 'tagged',
  'deepseek-ai-DeepSeek-R1-Distill-Llama-8B': '+ json',
  'deepseek-ai-DeepSeek-R1-Distill-Qwen-32B': '+ json',
  'deepseek-ai-DeepSeek-V3.1': '+ json',
  'deepseek-ai-DeepSeek-V3.2': 'tagged',
  'deepseek-ai-DeepSeek-V4-Flash-0731': 'tagged',
  'deepseek-ai-DeepSeek-V4': 'tagged',
  'fireworks-ai-llama-3-firefunction-v2': 'no tools*',
  'google-gemma-2-2b-it': '+ json',
  'google-gemma-4-31B-it-interleaved': 'code',
  'google-gemma-4-31B-it': 'code',
  'ibm-granite-granite-3.3-2B-Instruct': 'json, named',
  'ibm-granite-granite-4.0': 'json',
  'ibm-granite-granite-4.1': 'json',
  'inclusionai-ling-3.0-flash': 'tagged',
  'llama-cpp-deepseek-r1': 'json',
  'llama-cpp-rwkv-world': '+ json',
  'meetkai-functionary-medium-v3.1': 'json',
  'meetkai-functionary-medium-v3.2': 'no tools*',
  'meta-llama-Llama-3.1-8B-Instruct': 'json',
  'meta-llama-Llama-3.2-3B-Instruct': 'json',
  'meta-llama-Llama-3.3-70B-Instruct': 'json',
  'microsoft-Phi-3.5-mini-instruct': '+ json',
  'mistralai-Ministral-3-14B-Reasoning-2512': 'json',
  'mistralai-Mistral-Nemo-Instruct-2407': 'json',
  'moonshotai-Kimi-K2': 'json',
  'muse-glimmer': 'no tools',
  'openai-gpt-oss-120b': 'json',
  'openbmb-MiniCPM5-1B': 'no tools*',
  'poolside-Laguna-S-2.1': 'tagged',
  'poolside-Laguna-XS-2.1': 'tagged',
  'poolside-Laguna-XS.2': 'tagged',
  'tencent-Hy3': 'no tools*',
  'unsloth-Apriel-1.5': 'no tools*',
  'unsloth-mistral-Devstral-Small-2507': 'json',
  'upstage-Solar-Open-100B': 'json',
};

test('every template is in the table', () => {
  const files = readdirSync(folder).filter((name) => name.endsWith('.jinja'));
  assert.deepEqual(files.map((name) => name.replace('.jinja', '')).sort(), Object.keys(outcomes).sort());
});

for (const [name, outcome] of Object.entries(outcomes)) {
  test(`${name}: ${outcome}`, () => {
    const template = new ChatTemplate(readFileSync(join(folder, `${name}.jinja`), 'utf8'), { bos: '<s>', eos: '</s>' });
    const { shape } = template;
    const form = shape.calls.arguments.type;
    const own = shape.printsCalls ? form : `${form}, named`;
    assert.equal({ own, described: `+ ${form}`, unknown: 'no tools' }[shape.tools], outcome.replace('*', ''));
    if (shape.tools === 'unknown') return;
    const isSingle = shape.calls.between === undefined;
    for (const list of isSingle ? [calls.slice(0, 1)] : [calls, calls.slice(0, 1)]) {
      const read = readCalls(shape, turnOf(template, list));
      assert.deepEqual(
        read.map(([called, text]) => [called, JSON.parse(text) as unknown]),
        list.map((call) => [call.name, JSON.parse(call.arguments) as unknown]),
      );
    }
  });
}

/** What the template prints for calls and their results, from their mark on. */
function turnOf(template: ChatTemplate, list: typeof calls): string {
  const messages: Message[] = [
    { role: 'user', content: [{ type: 'text', text: 'USERTEXT' }] },
    { role: 'assistant', content: [], reasoning: [], toolCalls: list },
    ...list.map((call): Message => ({
      role: 'tool',
      toolCallId: call.id,
      content: [{ type: 'text', text: 'RESULT' }],
    })),
  ];
  const pieces = template.render(messages, { effort: 'medium', tools });
  const prompt = pieces.map(({ text }) => text).join('');
  const after = prompt.slice(prompt.lastIndexOf('USERTEXT'));
  const { mark } = template.shape.calls;
  if (mark !== '') return after.slice(after.indexOf(mark)).split('RESULT')[0] ?? '';
  return (
    after.slice(Math.max(after.indexOf(' to=functions.'), after.lastIndexOf('{"name"'))).split('<|eot_id|>')[0] ?? ''
  );
}

/** The calls in a text that comes unit by unit. */
function readCalls(shape: ChatTemplate['shape'], text: string): (readonly [string, string])[] {
  const offered = new Map(tools.map((tool) => [tool.name, { parameters: tool.parameters }]));
  const reader = new OutputParser({
    shape,
    startsInThought: false,
    calls: { tools: offered, callsMax: Infinity, bound: 'nothing' },
  });
  const events = [...text.split('').flatMap((unit) => reader.push(unit)), ...reader.end()];
  const read: [string, string][] = [];
  for (const event of events) {
    if (event.type === 'tool-call') read.push([event.name, '']);
    else if (event.type === 'tool-arguments') read[read.length - 1]![1] += event.text;
  }
  return read;
}
