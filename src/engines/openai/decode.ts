import type { FinishReason, GenerationEvent, TokenLogprob } from '../../generation/event.ts';
import type { RawUsage, UsageTally } from '../usage-tally.ts';
import { StreamFault } from './sse.ts';

/** An error that the backend put into its answer instead of an HTTP status: the parsed body, for the classifier. */
export class InBandError extends Error {
  override readonly name = 'InBandError';
  readonly body: unknown;
  constructor(body: unknown) {
    super('the backend reported an error inside its answer');
    this.body = body;
  }
}

export interface DecoderOptions {
  /** Ours, unique: the root of tool call ids that the backend leaves out. */
  readonly requestId: string;
  readonly choices: number;
  readonly choicesPerPrompt: number;
  readonly maxTokens: number;
  readonly wantsLogprobs: boolean;
  /** What a usage without a choice beside it counts: the request, or (llama-server) the choice that has just ended. */
  readonly closingUsage: 'total' | 'per-choice';
  readonly tally: UsageTally;
}

const toolCallsMax = 256;
const toolNameCharactersMax = 1_024;
const earlyArgumentsCharactersMax = 64 * 1024;

/**
 * Turns the chunks of chat completions and text completions into events. It believes nothing: indexes, names and counts
 * are bounded, an event that cannot be interpreted is a fault and is never skipped (reliability U8, U10, U11).
 *
 * Decisions on U11: a second finish of a choice and everything after `[DONE]` change nothing and are dropped; text after
 * the finish of its choice is a fault, because neither showing nor hiding it would be right.
 */
export class ChunkDecoder {
  readonly #options: DecoderOptions;
  readonly #choices: ChoiceState[];
  #out: GenerationEvent[] = [];
  #started = false;
  #finished = 0;
  #sawDone = false;
  #sawClosingUsage = false;
  #isUsageNew = false;

  constructor(options: DecoderOptions) {
    this.#options = options;
    this.#choices = Array.from({ length: options.choices }, newChoiceState);
  }

  /** Whether every choice has its finish. */
  get isFinished(): boolean {
    return this.#finished === this.#choices.length;
  }

  /**
   * Whether nothing can follow: all choices finished and the backend said `[DONE]` or its closing usage. Usage beside a
   * choice does not close the stream: vLLM tells the cached tokens only in the closing one.
   */
  get isComplete(): boolean {
    return this.isFinished && (this.#sawDone || this.#sawClosingUsage);
  }

  /** The events since the last call, with the usage as it stands if the backend has reported. Empty: nothing yet. */
  drain(): GenerationEvent[] {
    const out = this.#out;
    if (this.#isUsageNew && this.#started) {
      out.push({ type: 'usage', usage: this.#options.tally.usage() });
      this.#isUsageNew = false;
    }
    if (out.length > 0) this.#out = [];
    return out;
  }

  /** The last word on usage, when the backend has not had it. */
  closing(): GenerationEvent[] {
    const { tally } = this.#options;
    return tally.isReported ? [] : [{ type: 'usage', usage: tally.usage(), counted: true }];
  }

  /** One event of the stream. */
  event(data: string, name: string): void {
    if (this.#sawDone) return;
    if (data === '[DONE]') {
      if (!this.isFinished) throw new StreamFault('the stream is done without a finish');
      this.#sawDone = true;
      return;
    }
    if (data === '') return;
    const chunk = parseObject(data);
    if (name === 'error' || isErrorBody(chunk)) throw new InBandError(chunk);
    this.chunk(chunk);
  }

  /** A whole answer, from a server that does not stream. */
  whole(body: string): void {
    const answer = parseObject(body);
    if (isErrorBody(answer) || !Array.isArray(answer['choices'])) throw new InBandError(answer);
    this.chunk(answer);
    // One delta is no count of a whole answer, so here the report must be there.
    if (!this.#options.tally.isReported) throw new StreamFault('a whole answer without usage');
    if (!this.isFinished) throw new StreamFault('a whole answer without a finish');
    this.#sawDone = true;
  }

  chunk(chunk: JsonObject): void {
    const choices = chunk['choices'];
    if (choices !== undefined && choices !== null && !Array.isArray(choices)) throw new StreamFault('choices');
    const { tally } = this.#options;
    const progress = chunk['prompt_progress'];
    if (isObject(progress)) {
      const first: unknown = Array.isArray(choices) ? choices[0] : undefined;
      const choice = isObject(first) ? this.#index(first['index']) : 0;
      tally.prompt(choice, progress['total'], progress['cache']);
    }
    const count = Array.isArray(choices) ? choices.length : 0;
    const usage = chunk['usage'];
    // Before the text, because the first text draws `start` with it, and after it, because it includes it.
    if (isObject(usage) && !this.#started) this.#promptOf(choices as readonly unknown[] | undefined, usage);
    for (let i = 0; i < count; i++) this.#choice((choices as readonly unknown[])[i]);
    if (isObject(usage)) this.#usage(count === 1 ? (choices as readonly unknown[])[0] : undefined, count, usage);
  }

  /**
   * Ends all choices at the limit of tokens, for a backend that writes beyond it (reliability U9). The limit is twice
   * `max_tokens` deltas, because a token can make two deltas, or 1,024 characters a token.
   */
  get isOverrun(): boolean {
    const { maxTokens, tally } = this.#options;
    return this.#choices.some(
      (state, index) => tally.deltas(index) > 2 * maxTokens + 64 || state.characters > 1_024 * (maxTokens + 64),
    );
  }

  cut(): void {
    this.#choices.forEach((state, choice) => {
      if (state.isFinished) return;
      this.#finish(state, choice, { type: 'finish', choice, reason: 'length', cause: 'max-tokens' });
    });
    this.#sawDone = true;
  }

  #choice(choice: unknown): void {
    if (!isObject(choice)) throw new StreamFault('a choice is no object');
    const index = this.#index(choice['index']);
    const state = this.#choices[index]!;
    const delta = choice['delta'] ?? choice['message'];
    let tokens = 0;
    let isReasoning = false;
    const logprobs = this.#options.wantsLogprobs ? logprobsOf(choice['logprobs']) : undefined;
    if (isObject(delta)) {
      const reasoning = text(delta['reasoning_content'] ?? delta['reasoning']);
      if (reasoning !== '') {
        tokens = 1;
        isReasoning = true;
        this.#emit(state, reasoning, { type: 'reasoning', choice: index, text: reasoning });
      }
      const content = text(delta['content']) || text(delta['refusal']);
      if (content !== '') {
        tokens = 1;
        isReasoning = false;
        this.#text(state, index, content, logprobs);
      }
      const calls = delta['tool_calls'];
      if (Array.isArray(calls) && calls.length > 0) {
        tokens = 1;
        isReasoning = false;
        calls.forEach((call: unknown, position) => this.#toolCall(state, index, call, position));
      }
    } else if (choice['text'] !== undefined) {
      const content = text(choice['text']);
      if (content !== '') {
        tokens = 1;
        this.#text(state, index, content, logprobs);
      }
    } else if (delta !== undefined && delta !== null) throw new StreamFault('a delta is no object');
    if (logprobs !== undefined && tokens === 0 && !isEmptyStart(delta)) state.logprobs.push(...logprobs);
    if (tokens > 0) this.#options.tally.delta(index, isReasoning, Math.max(tokens, logprobs?.length ?? 0));
    const reason = choice['finish_reason'];
    if (reason !== undefined && reason !== null && reason !== '') this.#finishReason(state, index, reason, choice);
  }

  #text(state: ChoiceState, choice: number, content: string, logprobs: readonly TokenLogprob[] | undefined): void {
    if (logprobs === undefined) return this.#emit(state, content, { type: 'text', choice, text: content });
    // Tokens that made no text of their own (half a character) belong to the text that they completed.
    const all = [...state.logprobs.splice(0), ...logprobs];
    this.#emit(state, content, { type: 'text', choice, text: content, logprobs: all });
  }

  #toolCall(state: ChoiceState, choice: number, raw: unknown, position: number): void {
    if (!isObject(raw)) throw new StreamFault('a tool call is no object');
    const fn = isObject(raw['function']) ? raw['function'] : {};
    const call = this.#callAt(state, raw, position);
    const name = text(fn['name']);
    const piece =
      typeof fn['arguments'] === 'object' && fn['arguments'] !== null
        ? JSON.stringify(fn['arguments'])
        : text(fn['arguments']);
    if (call.number === undefined) {
      call.id ??= typeof raw['id'] === 'string' ? raw['id'] : undefined;
      call.early += piece;
      if (call.early.length > earlyArgumentsCharactersMax) throw new StreamFault('a tool call has no name');
      if (name === '') return;
      if (name.length > toolNameCharactersMax) throw new StreamFault('the name of a tool is too long');
      call.number = state.calls.named++;
      const id = toolCallId(call.id, this.#options.requestId, choice, call.number);
      this.#emit(state, name, { type: 'tool-call', choice, call: call.number, id, name });
      const early = call.early;
      call.early = '';
      if (early !== '') this.#emit(state, early, { type: 'tool-arguments', choice, call: call.number, text: early });
      return;
    }
    if (piece !== '') this.#emit(state, piece, { type: 'tool-arguments', choice, call: call.number, text: piece });
  }

  /** The call that a fragment belongs to. A backend's index only tells calls apart; ours count from 0 without gaps. */
  #callAt(state: ChoiceState, raw: JsonObject, position: number): CallState {
    const { byIndex } = state.calls;
    const index = raw['index'] ?? this.#guessedIndex(state, raw, position);
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= toolCallsMax) {
      throw new StreamFault('the index of a tool call is out of range');
    }
    let call = byIndex.get(index as number);
    if (call === undefined) {
      call = { number: undefined, id: undefined, early: '' };
      byIndex.set(index as number, call);
      state.calls.lastIndex = index as number;
    }
    return call;
  }

  /** Without an index: a fragment with an id or a name begins a call, one without goes on with the last. */
  #guessedIndex(state: ChoiceState, raw: JsonObject, position: number): number {
    const { byIndex, lastIndex } = state.calls;
    const isNew = typeof raw['id'] === 'string' || (isObject(raw['function']) && text(raw['function']['name']) !== '');
    if (byIndex.size === 0) return position;
    return isNew ? lastIndex + 1 : lastIndex;
  }

  #finishReason(state: ChoiceState, choice: number, raw: unknown, fields: JsonObject): void {
    if (typeof raw !== 'string') throw new StreamFault('the finish reason is no text');
    if (state.isFinished) return;
    if ([...state.calls.byIndex.values()].some((call) => call.number === undefined)) {
      throw new StreamFault('a tool call has no name');
    }
    const reason = finishReasonOf(raw);
    if (reason === undefined) throw new StreamFault('the backend gave up on the answer');
    // vLLM names the stop in `stop_reason`, SGLang in `matched_stop`; both give a token id or a text.
    const stop = fields['stop_reason'] ?? fields['matched_stop'];
    this.#finish(state, choice, {
      type: 'finish',
      choice,
      // Servers disagree on `stop` or `tool_calls` for a forced call.
      reason: reason === 'stop' && state.calls.named > 0 ? 'tool-calls' : reason,
      ...(typeof stop === 'string' && reason === 'stop' ? { stopSequence: stop } : {}),
      ...(Number.isInteger(stop) && reason === 'stop' ? { stopTokenId: stop as number } : {}),
      ...(raw === 'repetition' ? { cause: 'repetition' as const } : {}),
    });
  }

  #finish(state: ChoiceState, choice: number, event: GenerationEvent): void {
    this.#start();
    state.isFinished = true;
    state.awaitsUsage = true;
    this.#finished++;
    this.#out.push(event);
  }

  #emit(state: ChoiceState, characters: string, event: GenerationEvent): void {
    if (state.isFinished) throw new StreamFault('text after the finish');
    if (!this.#started) this.#start();
    state.characters += characters.length;
    this.#out.push(event);
  }

  #start(): void {
    if (this.#started) return;
    this.#started = true;
    const { tally } = this.#options;
    const promptTokens = tally.promptTokens;
    const cachedTokens = tally.cachedTokens;
    this.#out.push({
      type: 'start',
      promptTokens,
      ...(promptTokens === undefined || cachedTokens === 0 ? {} : { cachedTokens }),
    });
  }

  #promptOf(choices: readonly unknown[] | undefined, usage: JsonObject): void {
    const raw = rawUsage(usage);
    const first = choices?.[0];
    const { tally, closingUsage } = this.#options;
    if (isObject(first)) tally.prompt(this.#index(first['index']), raw.promptTokens, raw.cachedTokens);
    else if (closingUsage === 'total') tally.reportTotal({ ...raw, completionTokens: undefined });
  }

  #usage(only: unknown, count: number, usage: JsonObject): void {
    const raw = rawUsage(usage);
    const { tally, closingUsage } = this.#options;
    // A figure beside a choice counts that choice; in a whole answer it counts the request, which is the same for one.
    if (isObject(only) && only['message'] === undefined) tally.reportChoice(this.#index(only['index']), raw);
    else if (closingUsage === 'per-choice' && count === 0) {
      const ended = this.#choices.findIndex((state) => state.awaitsUsage);
      if (ended === -1) return;
      this.#choices[ended]!.awaitsUsage = false;
      tally.reportChoice(ended, raw);
    } else {
      for (const state of this.#choices) state.awaitsUsage = false;
      tally.reportTotal(raw);
    }
    this.#isUsageNew = tally.isReported;
    if (this.isFinished && count === 0) this.#sawClosingUsage = this.#choices.every((state) => !state.awaitsUsage);
  }

  #index(raw: unknown): number {
    const index = raw ?? 0;
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= this.#choices.length) {
      throw new StreamFault('the index of a choice is out of range');
    }
    return index as number;
  }
}

type JsonObject = Readonly<Record<string, unknown>>;

interface ChoiceState {
  isFinished: boolean;
  awaitsUsage: boolean;
  characters: number;
  readonly logprobs: TokenLogprob[];
  readonly calls: { readonly byIndex: Map<number, CallState>; lastIndex: number; named: number };
}

interface CallState {
  /** Ours; known when the name is. */
  number: number | undefined;
  id: string | undefined;
  /** Arguments that came before the name. */
  early: string;
}

const newChoiceState = (): ChoiceState => ({
  isFinished: false,
  awaitsUsage: false,
  characters: 0,
  logprobs: [],
  calls: { byIndex: new Map(), lastIndex: 0, named: 0 },
});

function parseObject(json: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    // Without the parser's message, which quotes the text.
    throw new StreamFault('invalid JSON');
  }
  if (!isObject(value)) throw new StreamFault('an event is no object');
  return value;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** `{"error": …}`, and the older form of vLLM, `{"object": "error", …}`. */
function isErrorBody(chunk: JsonObject): boolean {
  return (chunk['error'] !== undefined && chunk['error'] !== null) || chunk['object'] === 'error';
}

function text(value: unknown): string {
  if (typeof value === 'string') return value;
  if (value === undefined || value === null) return '';
  throw new StreamFault('a text is no text');
}

/** The chunk that only names the role carries the logprobs of a token whose text is elsewhere or hidden. */
function isEmptyStart(delta: unknown): boolean {
  return isObject(delta) && delta['role'] !== undefined;
}

function finishReasonOf(raw: string): FinishReason | undefined {
  if (raw === 'length' || raw === 'max_tokens' || raw === 'repetition') return 'length';
  if (raw === 'tool_calls' || raw === 'function_call') return 'tool-calls';
  if (raw === 'error' || raw === 'abort') return undefined;
  return 'stop';
}

/** An id in the form that clients expect: `call_…`, short, visible ASCII. */
function toolCallId(raw: string | undefined, requestId: string, choice: number, call: number): string {
  if (raw === undefined || !/^[\x21-\x7e]{1,200}$/.test(raw)) return `call_${requestId}${choice}_${call}`;
  return raw.startsWith('call_') ? raw : `call_${raw}`;
}

function rawUsage(usage: JsonObject): RawUsage {
  const prompt = usage['prompt_tokens_details'];
  const completion = usage['completion_tokens_details'];
  return {
    promptTokens: usage['prompt_tokens'],
    cachedTokens: isObject(prompt) ? prompt['cached_tokens'] : undefined,
    completionTokens: usage['completion_tokens'],
    reasoningTokens: (isObject(completion) ? completion['reasoning_tokens'] : undefined) ?? usage['reasoning_tokens'],
  };
}

/** Both shapes: chat's list of tokens, and the parallel arrays of text completions. */
function logprobsOf(raw: unknown): readonly TokenLogprob[] | undefined {
  if (!isObject(raw)) return undefined;
  const { content, tokens } = raw;
  if (Array.isArray(content)) return content.map(chatLogprob);
  if (!Array.isArray(tokens)) return undefined;
  const values = Array.isArray(raw['token_logprobs']) ? raw['token_logprobs'] : [];
  const tops = Array.isArray(raw['top_logprobs']) ? raw['top_logprobs'] : [];
  return tokens.map((token: unknown, i) => ({
    token: text(token),
    tokenId: undefined,
    logprob: logprob(values[i]),
    top: isObject(tops[i])
      ? Object.entries(tops[i]).map(([top, value]) => ({ token: top, tokenId: undefined, logprob: logprob(value) }))
      : [],
  }));
}

function chatLogprob(raw: unknown): TokenLogprob {
  if (!isObject(raw)) throw new StreamFault('a logprob is no object');
  const top: unknown[] = Array.isArray(raw['top_logprobs']) ? raw['top_logprobs'] : [];
  return { ...tokenOf(raw), top: top.filter(isObject).map(tokenOf) };
}

function tokenOf(raw: JsonObject): { token: string; tokenId: number | undefined; logprob: number } {
  const id = raw['id'];
  return {
    token: text(raw['token']),
    tokenId: Number.isInteger(id) ? (id as number) : undefined,
    logprob: logprob(raw['logprob']),
  };
}

/** JSON has no −∞; servers write −9999 or null for it. */
function logprob(value: unknown): number {
  return typeof value === 'number' ? Math.min(value, 0) : -9_999;
}
