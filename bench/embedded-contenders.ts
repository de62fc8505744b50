import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';
import { createLlamaEngine } from '../src/inference/engines/llama/engine.ts';
import { MemoryBudget } from '../src/inference/engines/llama/memory-budget.ts';
import { Problem } from './problem.ts';

/** How many tokens of an answer were there, and when. */
export interface Arrival {
  readonly atMs: number;
  readonly tokens: number;
}

export interface Answer {
  readonly arrivals: readonly Arrival[];
  readonly text: string;
}

/** One of the two that are compared. */
export interface Contender {
  readonly name: string;
  /** Exactly this many tokens at temperature 0, without the prompt cache. */
  answer(prompt: readonly number[], tokens: number): Promise<Answer>;
  close(): Promise<void>;
}

/** What both are given alike. */
export interface Settings {
  readonly modelFile: string;
  readonly slots: number;
  /** Tokens of one slot. */
  readonly contextLength: number;
  readonly decodeThreads: number;
  readonly prefillThreads: number;
}

const patienceMs = 900_000;

/** The engine at its own interface: model in its child process, no HTTP, no service around it. */
export async function embedded(settings: Settings, bannedTokens: readonly number[]): Promise<Contender> {
  const { modelFile, slots, contextLength, decodeThreads, prefillThreads } = settings;
  const engine = createLlamaEngine({
    name: 'bench',
    modelFile: Promise.resolve(modelFile),
    slots,
    contextLength,
    decodeThreads,
    threads: prefillThreads,
    memory: new MemoryBudget({ cacheBytesMax: Number.MAX_SAFE_INTEGER, models: 1 }),
    defaultSystem: 'none',
    firstTokenTimeoutMs: patienceMs,
    idleTimeoutMs: patienceMs,
    log: () => {},
  });
  await engine.ready;
  const logitBias = Object.fromEntries(bannedTokens.map((id) => [String(id), -100]));
  let requests = 0;
  return {
    name: 'embedded',
    answer: async (prompt, tokens) => {
      const arrivals: Arrival[] = [];
      let text = '';
      await engine.generate(
        {
          id: String(++requests).padStart(32, '0'),
          prompt: { type: 'token-ids', prompts: [prompt] },
          choices: 1,
          maxTokens: tokens,
          sampling: {
            temperature: 0,
            topP: undefined,
            topK: undefined,
            minP: undefined,
            presencePenalty: undefined,
            frequencyPenalty: undefined,
            repetitionPenalty: undefined,
            seed: undefined,
          },
          stop: [],
          tools: [],
          toolChoice: { type: 'none' },
          parallelToolCalls: true,
          constraint: undefined,
          effort: 'none',
          reasoningForm: 'separate',
          reasoningRoomTokens: 0,
          logprobs: undefined,
          logitBias,
          cacheScope: 'bench',
          retain: false,
        },
        new AbortController().signal,
        (batch) => {
          for (const event of batch) {
            if (event.type === 'text') text += event.text;
            if (event.type === 'usage')
              arrivals.push({ atMs: performance.now(), tokens: event.usage.completionTokens });
          }
          return true;
        },
      );
      return { arrivals, text };
    },
    close: () => engine.close(),
  };
}

export interface LlamaServer extends Contender {
  tokenize(text: string): Promise<readonly number[]>;
  /** Tokens that end an answer. */
  readonly endTokens: readonly number[];
  readonly version: string;
}

/** llama-server over its own `/completion`, which knows how to go on after an end token. */
export async function llamaServer(settings: Settings, root: string, folder: string): Promise<LlamaServer> {
  const binary = findBinary(root);
  const logFile = join(mkdtempSync(join(folder, 'llama-server-')), 'log');
  const { modelFile, slots, contextLength, decodeThreads, prefillThreads } = settings;
  // In this process's own session, where the engine's child is too: the scheduler shares the processor among sessions.
  const log = openSync(logFile, 'a');
  const child = spawn(
    binary,
    [
      ...['-m', modelFile, '--host', '127.0.0.1', '--port', '0', '-np', String(slots)],
      // The embedded engine's context: a part of its own for every slot, 16-bit keys and values.
      ...['-c', String(contextLength * slots), '--no-kv-unified', '-ctk', 'f16', '-ctv', 'f16', '-fa', 'auto'],
      ...['-t', String(decodeThreads), '-tb', String(prefillThreads), '-ngl', '0'],
      ...['--no-webui', '--no-context-shift', '--cache-ram', '0', '-lv', '3'],
    ],
    { cwd: folder, stdio: ['ignore', log, log] },
  );
  closeSync(log);
  process.once('exit', () => child.kill('SIGKILL'));
  const ended = (): string | undefined =>
    child.exitCode === null && child.signalCode === null
      ? undefined
      : `ended with ${child.signalCode ?? child.exitCode}`;
  const origin = await listening(logFile, ended);
  const dispatcher = new Agent({ connections: slots + 1, headersTimeout: patienceMs, bodyTimeout: patienceMs });
  const post = async (path: string, body: unknown): Promise<AsyncIterable<Buffer>> => {
    const answer = await request(origin + path, {
      dispatcher,
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (answer.statusCode !== 200) throw new Error(`llama-server ${path}: ${await answer.body.text()}`);
    return answer.body;
  };
  const tokenize = async (text: string, special = false): Promise<readonly number[]> => {
    const body = await post('/tokenize', { content: text, add_special: false, parse_special: special });
    return (JSON.parse(await wholeText(body)) as { tokens: number[] }).tokens;
  };
  const ends = await Promise.all(endTexts.map((text) => tokenize(text, true)));
  return {
    name: 'llama-server',
    version: versionOf(binary),
    endTokens: ends.filter((ids) => ids.length === 1).flat(),
    tokenize: (text) => tokenize(text),
    answer: async (prompt, tokens) => {
      const body = await post('/completion', {
        prompt,
        n_predict: tokens,
        temperature: 0,
        // With these the sampler's chain is as short as it can be made.
        samplers: ['top_k'],
        top_k: 1,
        ignore_eos: true,
        cache_prompt: false,
        stream: true,
      });
      const arrivals: Arrival[] = [];
      let text = '';
      let rest = '';
      for await (const bytes of body) {
        const atMs = performance.now();
        const lines = (rest + bytes.toString('utf8')).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) {
          if (!line.startsWith('data: ')) continue;
          const data = JSON.parse(line.slice('data: '.length)) as { content?: string; tokens_predicted?: number };
          text += data.content ?? '';
          if (data.tokens_predicted !== undefined) arrivals.push({ atMs, tokens: data.tokens_predicted });
        }
      }
      return { arrivals, text };
    },
    close: async () => {
      await dispatcher.destroy();
      const exit = ended() === undefined ? once(child, 'exit') : undefined;
      child.kill('SIGTERM');
      await exit;
    },
  };
}

/** Control tokens of the families that ship as GGUF; those that a vocabulary has as one token are banned in both. */
const endTexts = ['<|im_end|>', '<|endoftext|>', '</s>', '<|eot_id|>', '<|end_of_text|>', '<eos>', '<end_of_turn>'];

function findBinary(root: string): string {
  try {
    const output = execFileSync(process.execPath, [join(root, 'scripts', 'llama-server.mjs'), '--full'], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    return output.trim();
  } catch {
    throw new Problem('There is no llama-server to compare with.', 'See the line above.');
  }
}

function versionOf(binary: string): string {
  const output = execFileSync('sh', ['-c', '"$0" --version 2>&1', binary], { encoding: 'utf8' });
  return /^version: (.*)$/m.exec(output)?.[1] ?? 'unknown version';
}

async function listening(logFile: string, ended: () => string | undefined): Promise<string> {
  const deadlineMs = performance.now() + patienceMs;
  for (;;) {
    const log = readFileSync(logFile, 'utf8');
    const origin = /listening on (http:\/\/\S+)/.exec(log)?.[1];
    if (origin !== undefined && (await isHealthy(origin))) return origin;
    const end = ended() ?? (performance.now() > deadlineMs ? 'did not get ready' : undefined);
    if (end !== undefined) throw new Error(`llama-server ${end}:\n${log.slice(-2_000)}`);
    await delay(50);
  }
}

async function isHealthy(origin: string): Promise<boolean> {
  try {
    const { statusCode, body } = await request(`${origin}/health`);
    await body.dump();
    return statusCode === 200;
  } catch {
    return false;
  }
}

async function wholeText(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
