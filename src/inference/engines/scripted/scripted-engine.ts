import { ApiError } from '../../../platform/errors.ts';
import type { GenerationEvent, TakeBatch } from '../../../generation/event.ts';
import type { EngineRequest, ImageTokens, Task } from '../../../generation/request.ts';
import type { Engine, EngineStatus } from '../engine.ts';
import { UsageTally } from '../usage-tally.ts';
import {
  formed,
  imageTokens,
  longestPromptTokens,
  matchingRule,
  planOf,
  promptTokensOf,
  tokensOf,
  withoutReasoning,
  type ScriptFault,
  type ScriptPlan,
  type ScriptRule,
  type ScriptToken,
} from './script.ts';
import { taskEvents } from '../task-events.ts';
import { findingOf } from './findings.ts';
import { idOf, logprobOf, readPrompt, vocabularySize } from './vocabulary.ts';
import type { StopSignal } from '../../../platform/stop-signal.ts';

export interface ScriptedEngineOptions {
  /** The model's public id, which rules can match. */
  readonly name: string;
  readonly contextLength: number;
  /** Whether the model accepts an effort. One that does not plays its scripts unchanged. */
  readonly reasons?: boolean;
  /** The first matching rule is played; the last one must match everything. */
  readonly scripts: readonly ScriptRule[];
}

/** Plays scripts instead of generating: for tests, demos, client checks, and benchmarks. */
export function createScriptedEngine(options: ScriptedEngineOptions): Engine {
  return new ScriptedEngine(options);
}

/** Maximum tokens of an unpaced script in one batch. */
const batchTokens = 256;

class ScriptedEngine implements Engine {
  readonly #options: ScriptedEngineOptions;
  readonly #tokens: ReadonlyMap<ScriptRule, SpokenTokens>;
  readonly #closing = new AbortController();

  constructor(options: ScriptedEngineOptions) {
    if (options.scripts.at(-1)?.when !== undefined || options.scripts.length === 0) {
      throw new RangeError('the last script must have no `when`: it is the default for all other requests');
    }
    this.#options = options;
    this.#tokens = new Map(
      options.scripts.map((rule) => {
        const thought = tokensOf(rule);
        return [rule, { thought, unthought: withoutReasoning(thought) }];
      }),
    );
  }

  async generate(request: EngineRequest, signal: StopSignal, take: TakeBatch): Promise<void> {
    const stops = [signal, this.#closing.signal];
    throwIfAborted(stops);
    const rule = this.#rule(request);
    const promptTokens = rule.promptTokens ?? promptTokensOf(request);
    const refusal = this.refusal(request);
    if (refusal !== undefined) throw refusal;
    const longest = rule.promptTokens ?? longestPromptTokens(request);
    const windowTokens = this.#options.contextLength - longest;
    if (windowTokens < 1) throw this.#tooLong(longest);
    if (request.task !== undefined) return await this.#measure(request, request.task, rule, promptTokens, stops, take);
    const prompts = request.prompt.type === 'messages' ? 1 : request.prompt.prompts.length;
    const choices = prompts * request.choices;
    const { thought, unthought } = this.#tokens.get(rule)!;
    const plan = planOf(this.#isQuiet(request) ? unthought : thought, request, windowTokens);
    const tally = new UsageTally({
      choices,
      choicesPerPrompt: choices,
      promptTokensMax: this.#options.contextLength * prompts,
      completionTokensMax: request.maxTokens,
    });
    if (rule.usage !== 'none') tally.prompt(0, promptTokens, 0);
    const start: GenerationEvent = { type: 'start', promptTokens: rule.usage === 'none' ? undefined : promptTokens };
    await this.#speak(start, rule, plan, choices, request, tally, stops, take);
  }

  countTokens(request: EngineRequest, signal: StopSignal): Promise<number | undefined> {
    if (signal.aborted) return Promise.reject(signal.reason as Error);
    return Promise.resolve(this.#rule(request).promptTokens ?? promptTokensOf(request));
  }

  imageTokens(): ImageTokens {
    return { likely: imageTokens, most: imageTokens };
  }

  get vocabularySize(): number {
    return vocabularySize;
  }

  /** Refuses options that would change a script's end, which is fixed. */
  refusal({ tokens }: EngineRequest): ApiError | undefined {
    const param = tokens?.ignoresEnd === true ? 'ignore_eos' : (tokens?.tokensMin ?? 0) > 0 ? 'min_tokens' : undefined;
    if (param === undefined) return undefined;
    return new ApiError('unsupported_parameter', `A scripted model does not support '${param}'.`, { param });
  }

  status(): EngineStatus {
    return this.#closing.signal.aborted ? { state: 'down', detail: 'closed' } : { state: 'ready' };
  }

  close(): Promise<void> {
    this.#closing.abort(this.#unavailable());
    return Promise.resolve();
  }

  /** Emits findings at the script's pace, one per prompt; the rule's fault comes after as many of them. */
  async #measure(
    request: EngineRequest,
    task: Task,
    { fault, firstTokenMs, paceMs, usage }: ScriptRule,
    promptTokens: number,
    stops: readonly StopSignal[],
    take: TakeBatch,
  ): Promise<void> {
    const startMs = performance.now() + firstTokenMs;
    if (firstTokenMs > 0) await until(startMs, stops);
    const { prompt } = request;
    const prompts = prompt.type === 'messages' ? [] : prompt.prompts;
    for (const [choice, each] of prompts.entries()) {
      if (fault?.afterTokens === choice) await fail(fault, stops, this.#options.name);
      if (paceMs > 0) await until(startMs + choice * paceMs, stops);
      const batch: GenerationEvent[] =
        choice === 0 ? [{ type: 'start', promptTokens: usage === 'none' ? undefined : promptTokens }] : [];
      // Not empty: the texts of a request are not, and each has a byte to count.
      batch.push(...taskEvents(task, choice, findingOf(task, each))!);
      if (!(await take(batch))) return;
      throwIfAborted(stops);
    }
  }

  /** Emits the tokens at their pace, then the finish of every choice and the usage, or the rule's fault on the way. */
  async #speak(
    start: GenerationEvent,
    rule: ScriptRule,
    plan: ScriptPlan,
    choices: number,
    request: EngineRequest,
    tally: UsageTally,
    stops: readonly StopSignal[],
    take: TakeBatch,
  ): Promise<void> {
    const tokens = formed(plan.tokens, request.reasoningForm);
    const { fault, paceMs } = rule;
    const end = fault === undefined ? tokens.length : Math.min(fault.afterTokens, tokens.length);
    const isFaulty = fault !== undefined && fault.afterTokens <= tokens.length;
    const startMs = performance.now() + rule.firstTokenMs;
    let batch: GenerationEvent[] = [start];
    let said = 0;
    // A prompt and its first token, or its finish or fault, come together: `start` alone would look like an answer.
    if (rule.firstTokenMs > 0) await until(startMs, stops);
    for (let choice = 0; choice < choices; choice++) {
      const prompt = readPrompt(request, Math.floor(choice / request.choices));
      if (prompt !== undefined) batch.push({ type: 'prompt', choice, ...prompt });
    }
    const starts = textStarts(tokens);
    while (said < end) {
      const dueMs = startMs + said * paceMs;
      if (paceMs > 0) await until(dueMs, stops);
      // A reader that fell behind gets everything that is due, as from a backend that did not wait for it.
      const due = paceMs > 0 ? 1 + Math.floor((performance.now() - dueMs) / paceMs) : batchTokens;
      const to = Math.min(end, said + Math.min(due, batchTokens));
      for (; said < to; said++) {
        for (let choice = 0; choice < choices; choice++) {
          const token = tokens[said]!;
          pushToken(batch, token, said, starts[said]!, choice, request);
          tally.said(choice, token.type, token.type === 'tool-call' ? token.name : token.text);
          tally.delta(choice, 1);
        }
      }
      if (said < end || isFaulty) {
        batch.push({ type: 'usage', usage: tally.usage(), ...(rule.usage === 'none' ? { counted: true } : {}) });
        const goesOn = take(batch);
        if (goesOn !== true && !(await goesOn)) return;
        batch = [];
        throwIfAborted(stops);
      }
    }
    if (isFaulty) await fail(fault, stops, this.#options.name);
    for (let choice = 0; choice < choices; choice++) batch.push(finishOf(plan, choice));
    batch.push(closingUsage(rule, start, tally));
    await take(batch);
  }

  /**
   * Returns whether reasoning is left out of the script. §4.2.5(4): with `none` there is no reasoning, or it is hidden: then it is played
   * and not shown.
   */
  #isQuiet({ prompt, effort, reasoningForm }: EngineRequest): boolean {
    const isReported = this.#options.reasons === true && prompt.type === 'messages';
    return isReported && effort === 'none' && reasoningForm !== 'hidden';
  }

  #rule(request: EngineRequest): ScriptRule {
    return matchingRule(this.#options.scripts, this.#options.name, request)!;
  }

  #tooLong(promptTokens: number): ApiError {
    const { name, contextLength } = this.#options;
    return new ApiError(
      'context_length_exceeded',
      `The prompt has ${promptTokens} tokens, the context window ${contextLength}. Shorten the prompt, lower \`max_tokens\`, or choose a model with a larger context.`,
      { extra: { model: name, context_length_limit: contextLength, prompt_tokens: promptTokens } },
    );
  }

  #unavailable(): ApiError {
    return new ApiError(
      'no_healthy_backends',
      'No backend of the model is available. Try again later, or use another model.',
      {
        extra: { model: this.#options.name },
      },
    );
  }
}

/** A rule's tokens, with reasoning and without. */
interface SpokenTokens {
  readonly thought: readonly ScriptToken[];
  readonly unthought: readonly ScriptToken[];
}

/** Returns where the text of each token begins in the answer. */
function textStarts(tokens: readonly ScriptToken[]): readonly number[] {
  let length = 0;
  return tokens.map((token) => {
    const start = length;
    if (token.type === 'text') length += token.text.length;
    return start;
  });
}

function pushToken(
  batch: GenerationEvent[],
  token: ScriptToken,
  at: number,
  start: number,
  choice: number,
  { id, tokens, logprobs: top }: EngineRequest,
): void {
  switch (token.type) {
    case 'text':
      if (tokens !== undefined) {
        const ids = tokens.returnsIds ? { tokenIds: [idOf(token.text)] } : {};
        const logprobs =
          top === undefined || token.text === '' ? {} : { logprobs: [logprobOf(token.text, at, start, top)] };
        batch.push({ type: 'text', choice, text: token.text, ...ids, ...logprobs });
        return;
      }
      if (token.text !== '') batch.push({ type: 'text', choice, text: token.text });
      return;
    case 'reasoning':
      // A token removed by a stop string is counted, but has no text.
      if (token.text !== '') batch.push({ type: token.type, choice, text: token.text });
      return;
    case 'tool-call':
      batch.push({ ...token, choice, id: `call_${id}${choice}_${token.call}` });
      return;
    case 'tool-arguments':
      batch.push({ ...token, choice });
  }
}

function finishOf(plan: ScriptPlan, choice: number): GenerationEvent {
  return {
    type: 'finish',
    choice,
    reason: plan.reason,
    ...(plan.stopSequence === undefined ? {} : { stopSequence: plan.stopSequence }),
    ...(plan.stopTokenId === undefined ? {} : { stopTokenId: plan.stopTokenId }),
    ...(plan.cause === undefined ? {} : { cause: plan.cause }),
  };
}

function closingUsage(rule: ScriptRule, start: GenerationEvent, tally: UsageTally): GenerationEvent {
  if (rule.usage === 'none') return { type: 'usage', usage: tally.usage(), counted: true };
  const counted = tally.usage();
  const raw = rule.usage ?? {};
  tally.reportTotal({
    promptTokens: start.type === 'start' ? start.promptTokens : undefined,
    cachedTokens: 0,
    completionTokens: counted.completionTokens,
    reasoningTokens: counted.reasoningTokens,
    ...Object.fromEntries(Object.entries(raw).filter(([, value]) => value !== undefined)),
  });
  return { type: 'usage', usage: tally.usage(), ...(tally.isReported && !tally.isDoubted ? {} : { counted: true }) };
}

async function fail(fault: ScriptFault, stops: readonly StopSignal[], model: string): Promise<never> {
  switch (fault.type) {
    case 'hang':
      return until(undefined, stops) as Promise<never>;
    case 'cut':
      throw new ApiError('backend_http_error', 'The backend of the model failed. Try again.', { extra: { model } });
    case 'error':
      throw new ApiError(fault.code, 'The script of the model ends with this error.', { extra: { model } });
  }
}

function throwIfAborted(stops: readonly StopSignal[]): void {
  for (const stop of stops) stop.throwIfAborted();
}

/** Waits until a moment of the monotonic clock, or forever; rejects immediately when a signal aborts. Leaves nothing behind. */
function until(atMs: number | undefined, stops: readonly StopSignal[]): Promise<void> {
  throwIfAborted(stops);
  const leftMs = atMs === undefined ? Infinity : atMs - performance.now();
  if (leftMs <= 0) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const timer = atMs === undefined ? undefined : setTimeout(() => settle(resolve), leftMs);
    const settle = (act: () => void): void => {
      clearTimeout(timer);
      for (const stop of stops) stop.removeEventListener('abort', onAbort);
      act();
    };
    const onAbort = (): void => settle(() => reject(stops.find((stop) => stop.aborted)!.reason as Error));
    for (const stop of stops) stop.addEventListener('abort', onAbort);
  });
}
