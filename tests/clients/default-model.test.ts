import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { ChatOpenAI } from '@langchain/openai';
import { generateObject } from 'ai';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';

import { firstPrompt } from '../../src/cli/serve.ts';
import { defaultModels } from '../../src/config/defaults.ts';
import { everydayPrompts, faultsOf } from '../support/everyday-prompts.ts';
import { TestService, until } from '../support/service.ts';
import type { UsageLine } from '../support/service.ts';

/**
 * What a newcomer gets: the default configuration, the real model, the printed command. Needs the model file, from the
 * cache or from any of its sources.
 */
const service = new TestService({ config: '' });
const model = 'smollm2-135m-instruct';
let client: OpenAI;
let firstUsage: OpenAI.CompletionUsage | undefined;

before(async () => {
  const { code, stderr } = await service.command('models', 'pull', model);
  assert.equal(code, 0, `the default model is needed here; get it with: npx tokenhouse models pull\n${stderr}`);
  await service.start();
  assert.match(service.output, new RegExp(`model +${model} · llama · .*ready`));
  client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0, timeout: 120_000 });
});
after(async () => {
  await service.verify();
  await service.dispose();
});

const question = {
  model,
  messages: [{ role: 'user' as const, content: firstPrompt }],
  temperature: 0,
  max_tokens: 64,
};

/** Microcents by the prices of the default configuration: $0.05 and $0.20 per million tokens, $0.025 for cached ones. */
function price(
  { prompt_tokens: prompt, completion_tokens: completion }: OpenAI.CompletionUsage,
  cached: number,
): number {
  assert.deepEqual(defaultModels[0].pricing, {
    input_dollars_per_million: 0.05,
    output_dollars_per_million: 0.2,
    cache_read_dollars_per_million: 0.025,
  });
  return Math.ceil((prompt - cached) * 5 + cached * 2.5 + completion * 20);
}

async function receiptOf(requestId: string | null | undefined): Promise<UsageLine> {
  const line = (await service.usage()).requests.find((request) => request.request_id === requestId);
  assert.ok(line, `no receipt of ${String(requestId)}`);
  return line;
}

test('a stream answers the pinned prompt; usage, receipt and cost agree', async () => {
  const { data: stream, request_id: id } = await client.chat.completions
    .create({ ...question, stream: true })
    .withResponse();
  let text = '';
  let finish: string | null | undefined;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    firstUsage = chunk.usage ?? firstUsage;
  }
  assert.match(text, /Paris/);
  assert.equal(finish, 'stop');
  assert.ok(firstUsage);
  const { prompt_tokens: prompt, completion_tokens: completion, total_tokens: total } = firstUsage;
  // The question alone has seven words; the template adds its marks around it and around the answer.
  assert.ok(prompt > 7 && prompt < 40, String(prompt));
  assert.ok(completion > 3 && completion < 64, String(completion));
  assert.equal(total, prompt + completion);
  const cached = firstUsage.prompt_tokens_details?.cached_tokens ?? 0;

  const receipt = await receiptOf(id);
  assert.equal(receipt.model, model);
  assert.equal(receipt.ending, 'finished');
  assert.equal(receipt.counted, false);
  assert.equal(receipt.prompt_tokens, prompt);
  assert.equal(receipt.completion_tokens, completion);
  assert.equal(receipt.cached_tokens, cached);
  assert.equal(receipt.cost_microcents, price(firstUsage, cached));
  assert.equal((await service.usage()).balanceMicrocents, 500_000_000 - receipt.cost_microcents);
});

test('the same question again finds its prompt in the cache and costs less', async () => {
  const answer = await client.chat.completions.create(question);
  assert.match(answer.choices[0]?.message.content ?? '', /Paris/);
  assert.equal(answer.choices[0]?.finish_reason, 'stop');
  assert.ok(answer.usage && firstUsage);
  const cached = answer.usage.prompt_tokens_details?.cached_tokens ?? 0;
  assert.ok(cached > 0, 'nothing was cached');
  assert.equal(answer.usage.prompt_tokens, firstUsage.prompt_tokens);
  assert.equal(answer.usage.completion_tokens, firstUsage.completion_tokens);
  const receipt = await receiptOf(answer._request_id);
  assert.equal(receipt.cached_tokens, cached);
  assert.equal(receipt.cost_microcents, price(answer.usage, cached));
  assert.ok(receipt.cost_microcents < price(firstUsage, 0));
});

const City = z.object({ country: z.string().max(40), capital: z.string().max(40) });

test('parse gives an object of the schema, which the real model was held to', async () => {
  const answer = await client.chat.completions.parse({
    ...question,
    messages: [{ role: 'user', content: 'What is the capital of France? Answer in JSON with country and capital.' }],
    response_format: zodResponseFormat(City, 'city'),
  });
  assert.equal(answer.choices[0]?.finish_reason, 'stop');
  assert.ok(City.safeParse(answer.choices[0]?.message.parsed).success, answer.choices[0]?.message.content ?? '');
});

test('a forced tool is called with arguments of its schema, whole and streamed', async () => {
  const asked = {
    ...question,
    messages: [{ role: 'user' as const, content: 'What is the weather in Paris?' }],
    tools: [zodFunction({ name: 'get_weather', parameters: z.object({ city: z.string().max(20) }) })],
    tool_choice: 'required' as const,
    parallel_tool_calls: false,
    max_tokens: 200,
  };
  const whole = await client.chat.completions.parse(asked);
  const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
  for (const { choices } of [whole, streamed]) {
    const [call] = choices[0]?.message.tool_calls ?? [];
    assert.equal(choices[0]?.finish_reason, 'tool_calls');
    assert.equal(call?.function.name, 'get_weather');
    const { city } = call.function.parsed_arguments as { city: string };
    assert.equal(typeof city, 'string');
  }
  assert.equal(
    streamed.choices[0]?.message.tool_calls?.[0]?.function.arguments,
    whole.choices[0]?.message.tool_calls?.[0]?.function.arguments,
  );
});

test('the AI SDK and LangChain get objects of their schemas from the real model', async () => {
  const prompt = 'What is the capital of France? Answer in JSON with country and capital.';
  const vercel = createOpenAICompatible({
    name: 'tokenhouse',
    baseURL: `${service.url}/v1`,
    apiKey: service.key,
    supportsStructuredOutputs: true,
  })(model);
  const { object } = await generateObject({ model: vercel, schema: City, prompt, temperature: 0, maxRetries: 0 });
  assert.ok(City.safeParse(object).success);
  const chain = new ChatOpenAI({
    model,
    apiKey: service.key,
    temperature: 0,
    maxRetries: 0,
    configuration: { baseURL: `${service.url}/v1` },
  });
  const structured = chain.withStructuredOutput(City, { name: 'city', method: 'jsonSchema' });
  assert.ok(City.safeParse(await structured.invoke(prompt)).success);
});

test('the printed command, pasted into a shell, streams an answer', async () => {
  const [, line] = /Try it:\n\n(curl [\s\S]*?)\n\n/.exec(service.output) ?? [];
  assert.ok(line, service.output);
  const printed = (await pasted(line)) ?? (await translated(line));
  const events = printed.split('\n\n').filter((event) => event !== '');
  assert.ok(events.length > 5, printed);
  assert.equal(events.at(-1), 'data: [DONE]');
  const text = events
    .slice(0, -1)
    .map((event) => JSON.parse(event.slice('data: '.length)) as OpenAI.ChatCompletionChunk)
    .map((chunk) => chunk.choices[0]?.delta.content ?? '')
    .join('');
  assert.match(text, /Paris/);
});

test('ten times "Say hello" in a terminal are ten greetings', async () => {
  const [hello] = everydayPrompts;
  for (let times = 0; times < 10; times++) {
    const { code, stdout, stderr } = await service.command('chat', '--json', hello!.prompt);
    assert.equal(code, 0, stderr);
    const { text, finish } = JSON.parse(stdout) as { readonly text: string; readonly finish: string };
    assert.deepEqual(faultsOf(hello!, text, finish), [], text);
  }
});

test('a client that leaves stops the work', async () => {
  const { data: stream, request_id: id } = await client.chat.completions
    .create({
      model,
      messages: [{ role: 'user', content: 'Write a very long story about a lighthouse.' }],
      max_tokens: 4000,
      stream: true,
    })
    .withResponse();
  let received = 0;
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) received++;
    if (received === 5) stream.controller.abort();
  }
  let receipt: UsageLine | undefined;
  await until(async () => {
    receipt = (await service.usage()).requests.find((request) => request.request_id === id);
    return receipt !== undefined;
  });
  assert.ok(receipt);
  assert.equal(receipt.ending, 'client_left');
  assert.ok(receipt.completion_tokens >= 5 && receipt.completion_tokens < 500, String(receipt.completion_tokens));
  // The rest of the story would keep the processors busy for a minute.
  if (process.platform === 'linux') await until(isIdle, 20_000);
});

test('the second start shows no key and is ready', async () => {
  const countOf = (pattern: RegExp): number => [...service.output.matchAll(pattern)].length;
  const keysShown = countOf(/tkh_/g);
  assert.equal(countOf(/ready in/g), 1);
  assert.equal(await service.stop(), 0);
  await service.start();
  assert.equal(countOf(/ready in/g), 2);
  assert.equal(countOf(/tkh_/g), keysShown);
  assert.equal(countOf(/The first account/g), 1);
  client = new OpenAI({ apiKey: service.key, baseURL: `${service.url}/v1`, maxRetries: 0, timeout: 120_000 });
  const answer = await client.chat.completions.create(question);
  assert.match(answer.choices[0]?.message.content ?? '', /Paris/);
  const table = await service.command('usage');
  assert.equal(table.code, 0, table.stderr);
  assert.ok(table.stdout.includes(answer._request_id ?? 'none'), table.stdout);
});

/** What a shell prints for the command; `undefined` where curl is not installed. */
async function pasted(command: string): Promise<string | undefined> {
  const child = spawn('sh', ['-c', command], { stdio: ['ignore', 'pipe', 'pipe'] });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (text: Buffer) => (stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (stderr += text.toString()));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  if (code === 127) return undefined;
  assert.equal(code, 0, stderr);
  return stdout;
}

/** The same request as the command's, by its words. */
async function translated(command: string): Promise<string> {
  const [, url = ''] = /curl -N (\S+)/.exec(command) ?? [];
  const headers = [...command.matchAll(/-H "([^:]+): ([^"]+)"/g)].map(([, name = '', value = '']) => [name, value]);
  const [, body = ''] = /-d '([^']+)'/.exec(command) ?? [];
  const answer = await fetch(url, {
    method: 'POST',
    headers: Object.fromEntries(headers) as Record<string, string>,
    body,
  });
  assert.equal(answer.status, 200);
  return await answer.text();
}

/** The service and its children use no processor time for a while. */
async function isIdle(): Promise<boolean> {
  const before = processorTicks();
  await new Promise((resolve) => setTimeout(resolve, 200));
  return processorTicks() - before <= 4;
}

/** Ticks (10 ms) of processor time of the service and its children, as the kernel counts them. */
function processorTicks(): number {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(statOf)
    .filter((stat) => stat !== undefined && (stat.pid === service.pid || stat.parent === service.pid))
    .reduce((sum, stat) => sum + (stat?.ticks ?? 0), 0);
}

function statOf(pid: string): { readonly pid: number; readonly parent: number; readonly ticks: number } | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name in parentheses may hold anything; what follows it is plain.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { pid: Number(pid), parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) };
  } catch {
    return undefined;
  }
}
