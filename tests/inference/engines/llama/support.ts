import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { knownUsage } from '../../../../src/generation/event.ts';
import {
  createLlamaEngine,
  type LlamaEngine,
  type LlamaEngineEvent,
  type LlamaEngineOptions,
} from '../../../../src/inference/engines/llama/engine.ts';
import type { FinishReason, GenerationEvent, Usage } from '../../../../src/generation/event.ts';
import type { EngineRequest, Message, Sampling } from '../../../../src/generation/request.ts';
import type { Engine } from '../../../../src/inference/engines/engine.ts';
import { all, engineRequest } from '../contract.ts';
import { writeTinyGguf, type TinyGgufOptions } from '../../../support/tiny-gguf.ts';

export const openSampling: Sampling = engineRequest('').sampling;

export function user(text: string): Message {
  return { role: 'user', content: [{ type: 'text', text }] };
}

export function system(text: string): Message {
  return { role: 'system', content: [{ type: 'text', text }] };
}

export function assistant(text: string): Message {
  return { role: 'assistant', content: [{ type: 'text', text }], reasoning: [], toolCalls: [] };
}

export function chat(text: string, overrides: Partial<EngineRequest> = {}): EngineRequest {
  return engineRequest(text, { maxTokens: 64, ...overrides });
}

export interface Answer {
  readonly events: readonly GenerationEvent[];
  readonly text: string;
  readonly texts: readonly string[];
  readonly finish: Extract<GenerationEvent, { type: 'finish' }> | undefined;
  readonly finishes: readonly { readonly choice: number; readonly reason: FinishReason }[];
  readonly usage: Usage | undefined;
  readonly start: Extract<GenerationEvent, { type: 'start' }> | undefined;
}

export async function collect(engine: Engine, request: EngineRequest, signal: AbortSignal): Promise<Answer> {
  return answerOf((await all(engine, request, signal)).flat());
}

export function answerOf(events: readonly GenerationEvent[]): Answer {
  const texts: string[] = [];
  for (const event of events) if (event.type === 'text') texts[event.choice] = (texts[event.choice] ?? '') + event.text;
  const finishes = events.flatMap((event) => (event.type === 'finish' ? [event] : []));
  return {
    events,
    text: texts[0] ?? '',
    texts,
    finish: finishes[0],
    finishes,
    usage: events.flatMap((event) => (event.type === 'usage' ? [knownUsage(event.usage)] : [])).at(-1),
    start: events.find((event) => event.type === 'start'),
  };
}

export const never = new AbortController().signal;

/** A model file of its own for a test; gone with the test. */
export function tinyModel(context: TestContext, options: TinyGgufOptions = {}): string {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-llama-'));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'tiny.gguf');
  writeTinyGguf(path, options);
  return path;
}

export interface TestEngine {
  readonly engine: LlamaEngine;
  readonly log: LlamaEngineEvent[];
}

/**
 * An engine on a real child, closed with the test. One thread: those of llama.cpp wait for each other by spinning, which beside other
 * tests takes half as much processor again; what is answered is the same, and `default-model.test.ts` has as many as there are cores.
 */
export async function startEngine(
  context: TestContext,
  modelFile: string,
  options: Partial<LlamaEngineOptions> = {},
): Promise<TestEngine> {
  const log: LlamaEngineEvent[] = [];
  const engine = createLlamaEngine({
    name: 'tiny',
    modelFile: Promise.resolve(modelFile),
    contextLength: 512,
    defaultSystem: 'template',
    threads: 1,
    log: (event) => log.push(event),
    ...options,
  });
  context.after(() => engine.close());
  await engine.ready;
  return { engine, log };
}

/** `count` different words that a scripted model says one after another. */
export function words(count: number, prefix = 'w'): string[] {
  return Array.from({ length: count }, (_, index) => ` ${prefix}${index}`);
}

/** The chain of a scripted model that answers with these pieces. */
export function says(...pieces: readonly string[]): readonly (readonly string[])[] {
  return [['assistant\n', ...pieces, '<|im_end|>']];
}

/** Waits for a condition, not for a time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  timeoutMs = 60_000,
): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error(`${what}: not within ${timeoutMs} ms`);
    await delay(5);
  }
}

export function deferred<T>(): {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
} {
  let resolve: (value: T) => void = () => {};
  let reject: (error: unknown) => void = () => {};
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}
