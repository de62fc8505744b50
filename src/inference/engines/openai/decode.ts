import { ApiError } from '../../../platform/errors.ts';
import type {
  FinishReason,
  GenerationEvent,
  PromptToken,
  ReadPrompt,
  TokenLogprob,
  TokenProbability,
  UsageReport,
} from '../../../generation/event.ts';
import type { ReasoningForm } from '../../../generation/request.ts';
import type { ParsedEvent } from '../../output-parsers/parsed-event.ts';
import { hermes } from '../../output-parsers/hermes.ts';
import { OutputParser } from '../../output-parsers/output-parser.ts';
import { StopMatcher } from '../stop-matcher.ts';
import type { RawUsage, UsageTally } from '../usage-tally.ts';
import { ArgumentsGuard, TextGuard, UnboundFault, type Bound, type ReportUnchecked } from './answer-guard.ts';
import { ChunkTemplate } from './chunk-template.ts';
import type { ChunkShapes } from './chunk-template.ts';
import { placed, splitEcho } from './echoed-prompt.ts';
import { StreamFault } from './sse.ts';
import type { EchoedBeginning } from './echoed-beginning.ts';
import type { ServedModel } from './served-model.ts';

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
  /** Hears what each parsed piece calls its model. */
  readonly served?: ServedModel | undefined;
  /** Our own unique id: the root of tool call ids that the backend omits. */
  readonly requestId: string;
  readonly choices: number;
  readonly choicesPerPrompt: number;
  readonly maxTokens: number;
  readonly reasoningForm: ReasoningForm;
  /** Whether think tags at the beginning of the text hold reasoning: the server may have left them in. */
  readonly splitsThinking: boolean;
  /** Number of alternatives requested for each chosen token; `undefined`: no logprobs. */
  readonly logprobs: number | undefined;
  /** `parallel_tool_calls: false`: a choice ends with its first call, even if the server would continue. */
  readonly takesOneCall: boolean;
  /** What a usage without a choice counts: the request, or (llama-server) the choice that has just ended. */
  readonly closingUsage: 'total' | 'per-choice';
  readonly tally: UsageTally;
  /** For text completions; absent for chat. */
  readonly completion?: CompletionReading;
  /** Shared by the server's other streams; absent: there are none. */
  readonly shapes?: ChunkShapes;
  /** The words that an answer continues, if the server repeats them. */
  readonly echo?: EchoedBeginning | undefined;
  /** What the answer is checked against; absent: nothing. */
  readonly bound?: Bound | undefined;
  /** Stop sequences that the server leaves at the end of the text; absent: it cuts them off. */
  readonly stops?: readonly string[] | undefined;
  /** An answer that is a whole call may have no finish reason. */
  readonly endsCallsWithoutReason?: boolean;
  readonly onUnchecked?: ReportUnchecked;
}

export interface CompletionReading {
  readonly prompts: readonly string[] | readonly (readonly number[])[];
  /** The first text of each choice begins with its prompt. */
  readonly isEchoed: boolean;
  /** What is reported of the prompt without the server. */
  ownEcho(prompt: number): ReadPrompt | undefined;
  /** Ids must be returned, or the answer is a failure. */
  readonly returnsIds: boolean;
  /** The client requested logprobs; otherwise they are only for us. */
  readonly hasLogprobs: boolean;
}

/** An answer of few chunks makes no template. */
const chunksBeforeTemplate = 8;
const toolCallsMax = 256;
const toolNameCharactersMax = 1_024;
const earlyArgumentsCharactersMax = 64 * 1024;

/**
 * - `reading`: more of the answer may come.
 * - `closed`: its closing usage has come; what follows is still checked.
 * - `done`: what follows is dropped.
 * - `cut-short`: so it is, and the server, which would go on, is stopped.
 */
type State = 'reading' | 'closed' | 'done' | 'cut-short';

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
  #state: State = 'reading';
  #out: GenerationEvent[] = [];
  #started = false;
  #finished = 0;
  /** Hidden reasoning was dropped whose tokens have not been reported. */
  #hasHidden = false;
  #isUsageNew = false;
  #template: ChunkTemplate | undefined;
  /** Chunks to parse before making a template, which costs as much as parsing five; more after each vain attempt. */
  #templatePatience = chunksBeforeTemplate;
  #templatePause = chunksBeforeTemplate;

  constructor(options: DecoderOptions) {
    this.#options = options;
    this.#choices = Array.from({ length: options.choices }, () => newChoiceState(options));
  }

  /** Whether every choice has its finish. */
  get isFinished(): boolean {
    return this.#finished === this.#choices.length;
  }

  /**
   * Whether nothing can follow: all choices have finished and the backend sent `[DONE]` or its closing usage. Usage beside a
   * choice does not close the stream: vLLM reports the cached tokens only in the closing one.
   */
  get isComplete(): boolean {
    return this.isFinished && this.#state !== 'reading';
  }

  /** The events since the last call, with the current usage if the backend has reported. Empty: nothing yet. */
  drain(): GenerationEvent[] {
    const out = this.#out;
    if ((this.#isUsageNew || this.#hasHidden) && this.#started) {
      out.push(this.#isUsageNew ? this.#usageEvent() : { type: 'usage', usage: this.#usage(), counted: true });
      this.#isUsageNew = false;
      this.#hasHidden = false;
    }
    if (out.length > 0) this.#out = [];
    return out;
  }

  /** The final usage, if the backend has not reported it. */
  closing(): GenerationEvent[] {
    const { tally } = this.#options;
    return tally.isReported ? [] : [{ type: 'usage', usage: this.#usage(), counted: true }];
  }

  /** Whether the backend has reported a usage that cannot be true (reliability U10). */
  get isUsageDoubted(): boolean {
    return this.#options.tally.isDoubted;
  }

  /** I5: figures that are not the backend's own are marked. */
  #usageEvent(): GenerationEvent {
    const { tally } = this.#options;
    const usage = this.#usage();
    return tally.isDoubted ? { type: 'usage', usage, counted: true } : { type: 'usage', usage };
  }

  /** §4.2.5(4): hidden reasoning counts as tokens of the answer and is not otherwise visible. */
  #usage(): UsageReport {
    const usage = this.#options.tally.usage();
    return this.#options.reasoningForm === 'hidden' ? { ...usage, reasoningTokens: 0 } : usage;
  }

  /** One event of the stream. */
  event(data: string, name: string): void {
    if (this.#state === 'done' || this.#state === 'cut-short') return;
    if (data === '[DONE]') {
      if (!this.isFinished && this.#options.endsCallsWithoutReason === true) this.#finishCalls();
      if (!this.isFinished) throw new StreamFault('the stream ended without a finish reason');
      this.#state = 'done';
      return;
    }
    if (data === '') return;
    if (this.#template === undefined && name === '') this.#template = this.#options.shapes?.templateFor(data);
    const filled = name === '' ? this.#template?.fill(data) : undefined;
    if (filled !== undefined) {
      this.#templatePause = chunksBeforeTemplate;
      // Not an error body, because its template was not one.
      return this.chunk(filled as JsonObject);
    }
    const chunk = parseObject(data);
    if (name === 'error' || isErrorBody(chunk)) throw new InBandError(chunk);
    this.#options.served?.heard(chunk['model']);
    this.chunk(chunk);
    if (--this.#templatePatience > 0) return;
    this.#template = ChunkTemplate.of(data);
    if (this.#template !== undefined) this.#options.shapes?.keep(this.#template);
    this.#templatePatience = this.#templatePause *= 2;
  }

  /** A whole answer, from a server that does not stream. */
  whole(body: string): void {
    const answer = parseObject(body);
    if (isErrorBody(answer) || !Array.isArray(answer['choices'])) throw new InBandError(answer);
    this.#options.served?.heard(answer['model']);
    this.chunk(answer);
    // One delta is no count of a whole answer, so the usage must be reported here.
    if (!this.#options.tally.isReported) throw new StreamFault('expected usage in the answer');
    if (!this.isFinished) throw new StreamFault('expected a finish reason in the answer');
    this.#state = 'done';
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
    if (isObject(usage)) this.#readUsage(count === 1 ? (choices as readonly unknown[])[0] : undefined, count, usage);
  }

  /**
   * Ends all choices at the token limit, for a backend that writes beyond it (reliability U9). The limit is twice `max_tokens`
   * deltas, because a token can make two deltas, or 1,024 characters per token.
   */
  get isOverrun(): boolean {
    const { maxTokens, tally } = this.#options;
    return this.#choices.some(
      (state, index) => tally.deltas(index) > 2 * maxTokens + 64 || state.characters > 1_024 * (maxTokens + 64),
    );
  }

  /** Whether the answer ended before its server did, so that the rest is not needed. */
  get isCutShort(): boolean {
    return this.#state === 'cut-short';
  }

  cut(): void {
    this.#choices.forEach((state, choice) => {
      if (state.isFinished) return;
      this.#finish(state, choice, { type: 'finish', choice, reason: 'length', cause: 'max-tokens' });
    });
    this.#state = 'done';
  }

  #choice(choice: unknown): void {
    if (!isObject(choice)) throw new StreamFault('expected an object in choices');
    const index = this.#index(choice['index']);
    const state = this.#choices[index]!;
    if (state.isCut) return;
    const delta = choice['delta'] ?? choice['message'];
    let tokens = 0;
    let isReasoning = false;
    const { logprobs: topMax, echo } = this.#options;
    const logprobs = topMax === undefined ? undefined : logprobsOf(choice['logprobs'], topMax);
    if (this.#options.completion !== undefined) return this.#completion(state, index, choice, this.#options.completion);
    if (isObject(delta)) {
      const reasoning = text(delta['reasoning_content'] ?? delta['reasoning']);
      if (reasoning !== '') {
        tokens = 1;
        isReasoning = true;
        // The server separates them itself.
        this.#endReading(state, index);
        this.#reasoning(state, index, reasoning);
      }
      const refusal = text(delta['refusal']);
      if (refusal !== '') state.guard?.release();
      const content = text(delta['content']) || refusal;
      if (content !== '') {
        tokens = 1;
        const own = echo === undefined ? content : echo.take(content);
        const kept = state.stop === undefined ? own : beforeStop(state, own, logprobs);
        if (kept !== '') isReasoning = this.#content(state, index, kept, logprobs);
      }
      const calls = delta['tool_calls'];
      if (Array.isArray(calls) && calls.length > 0) {
        tokens = 1;
        isReasoning = false;
        for (let i = 0; i < calls.length && !state.isCut; i++) this.#toolCall(state, index, calls[i], i);
      }
    } else if (choice['text'] !== undefined) {
      const content = text(choice['text']);
      if (content !== '') {
        tokens = 1;
        this.#text(state, index, content, logprobs);
      }
    } else if (delta !== undefined && delta !== null) throw new StreamFault('expected an object at delta');
    // Written, but held back by a call parser (`return_token_ids`): a client that leaves now pays for it.
    const kept: unknown = tokens === 0 ? choice['token_ids'] : undefined;
    if (Array.isArray(kept) && kept.length > 0) {
      tokens = kept.length;
      this.#start();
    }
    if (logprobs !== undefined && tokens === 0 && !isEmptyStart(delta)) state.logprobs.push(...logprobs);
    if (tokens > 0) this.#options.tally.delta(index, isReasoning, Math.max(tokens, logprobs?.length ?? 0));
    const reason = choice['finish_reason'];
    if (reason !== undefined && reason !== null && reason !== '') this.#finishReason(state, index, reason, choice);
  }

  /** A piece of a text completion. All of it is text. */
  #completion(state: ChoiceState, index: number, choice: JsonObject, reading: CompletionReading): void {
    const { prompts, isEchoed, returnsIds, hasLogprobs } = reading;
    const prompt = Math.floor(index / this.#options.choicesPerPrompt);
    let content = text(choice['text']);
    let tokens = isEchoed || hasLogprobs ? promptTokensOf(choice['logprobs'], this.#options.logprobs ?? 1) : undefined;
    const ids = returnsIds ? idsOf(choice['token_ids']) : undefined;
    const promptIds = returnsIds ? idsOf(choice['prompt_token_ids']) : undefined;
    const isSilent = content === '' && (tokens?.length ?? 0) === 0 && (ids?.length ?? 0) === 0;
    const reason = choice['finish_reason'];
    const isEnd = reason !== undefined && reason !== null && reason !== '';
    // A chunk of progress, or an empty one while the prompt is read.
    if (isSilent && !isEnd && promptIds === undefined) return;
    if (!state.hasPrompt) {
      state.hasPrompt = true;
      // An older server ignores the field, and would omit what the client waits for.
      if (returnsIds && promptIds === undefined) throw idsNotReturned();
      if (isEchoed) {
        const split = splitEcho({ text: content, tokens: tokens ?? [], promptIds }, prompts[prompt] ?? '');
        const { tokens: promptTokens, ...read } = split.prompt;
        const reported = hasLogprobs && promptTokens !== undefined ? { ...read, tokens: promptTokens } : read;
        this.#emit(state, '', { type: 'prompt', choice: index, ...reported });
        content = split.text;
        tokens = split.tokens;
      } else {
        const own = reading.ownEcho(prompt);
        const reported = promptIds === undefined ? own : { text: own?.text ?? '', tokenIds: promptIds };
        if (reported !== undefined) this.#emit(state, '', { type: 'prompt', choice: index, ...reported });
      }
    }
    const { maxTokens } = this.#options;
    // vLLM makes a token when it scores a prompt, and does not show it.
    const count = maxTokens === 0 ? 0 : (ids?.length ?? tokens?.length ?? 0);
    if (content !== '' || count > 0) {
      state.guard?.text(content);
      const from = state.characters;
      const logprobs =
        hasLogprobs && tokens !== undefined
          ? { logprobs: placed(content, tokens as readonly TokenLogprob[], from) }
          : {};
      const tokenIds = ids === undefined ? {} : { tokenIds: maxTokens === 0 ? [] : ids };
      this.#emit(state, content, { type: 'text', choice: index, text: content, ...logprobs, ...tokenIds });
      this.#options.tally.delta(index, false, Math.max(1, count));
    }
    if (isEnd) this.#finishReason(state, index, reason, choice);
  }

  /** §4.2.5(1) and (4): beside the answer, in it between tags, or not at all. */
  #reasoning(state: ChoiceState, choice: number, reasoning: string): void {
    state.guard?.thought();
    switch (this.#options.reasoningForm) {
      case 'separate':
        return this.#emit(state, reasoning, { type: 'reasoning', choice, text: reasoning });
      case 'inline': {
        const text = state.isThinking ? reasoning : `<think>\n${reasoning}`;
        state.isThinking = true;
        return this.#emit(state, reasoning, { type: 'text', choice, text });
      }
      case 'hidden':
        // Nothing else shows that it took tokens.
        this.#start();
        this.#hasHidden = true;
    }
  }

  /** Text that may contain think tags; returns whether it was reasoning. */
  #content(
    state: ChoiceState,
    choice: number,
    content: string,
    logprobs: readonly TokenLogprob[] | undefined,
  ): boolean {
    const { reader } = state;
    if (reader === undefined) {
      this.#text(state, choice, content, logprobs);
      return false;
    }
    const found = reader.push(content);
    if (logprobs !== undefined) state.logprobs.push(...logprobs);
    this.#found(state, choice, found, logprobs !== undefined);
    // Once the answer has begun, no tags are looked for.
    if (reader.phase === 'answer' && found.at(-1)?.type === 'text') state.reader = undefined;
    return reader.phase === 'reasoning' || found.some(({ type }) => type === 'reasoning');
  }

  #found(state: ChoiceState, choice: number, found: readonly ParsedEvent[], withLogprobs: boolean): void {
    for (const event of found) {
      if (event.type === 'text') this.#text(state, choice, event.text, withLogprobs ? [] : undefined);
      else if (event.type === 'reasoning') {
        // Logprobs cover the tokens of the answer, not those of the thought before it.
        state.logprobs.length = 0;
        this.#reasoning(state, choice, event.text);
      }
    }
  }

  /** No more text follows: the held text is all there is. */
  #endReading(state: ChoiceState, choice: number): void {
    const { reader } = state;
    if (reader === undefined) return;
    state.reader = undefined;
    this.#found(state, choice, reader.end(), this.#options.logprobs !== undefined);
  }

  #endThinking(state: ChoiceState, choice: number): void {
    if (!state.isThinking) return;
    state.isThinking = false;
    this.#emit(state, '', { type: 'text', choice, text: '\n</think>\n\n' });
  }

  #text(state: ChoiceState, choice: number, content: string, logprobs: readonly TokenLogprob[] | undefined): void {
    this.#endThinking(state, choice);
    state.guard?.text(content);
    if (logprobs === undefined) return this.#emit(state, content, { type: 'text', choice, text: content });
    // Tokens that made no text of their own (half a character) belong to the text that they completed.
    const all = [...state.logprobs.splice(0), ...logprobs];
    this.#emit(state, content, { type: 'text', choice, text: content, logprobs: all });
  }

  #toolCall(state: ChoiceState, choice: number, raw: unknown, position: number): void {
    if (!isObject(raw)) throw new StreamFault('expected an object in tool_calls');
    this.#endReading(state, choice);
    this.#endThinking(state, choice);
    const fn = isObject(raw['function']) ? raw['function'] : {};
    const call = this.#callAt(state, raw, position);
    if (this.#options.takesOneCall && call.number === undefined && state.calls.named > 0) {
      this.#cutCalls(state, choice);
      return;
    }
    const name = nameOf(raw);
    const piece =
      typeof fn['arguments'] === 'object' && fn['arguments'] !== null
        ? JSON.stringify(fn['arguments'])
        : text(fn['arguments']);
    if (call.number === undefined) {
      call.id ??= idOf(raw);
      call.early += piece;
      if (call.early.length > earlyArgumentsCharactersMax) throw new StreamFault('expected a name in a tool call');
      if (name === '') return;
      if (name.length > toolNameCharactersMax) throw new StreamFault('the name of a tool is too long');
      call.number = state.calls.named++;
      const id = toolCallId(call.id, this.#options.requestId, choice, call.number);
      this.#emit(state, name, { type: 'tool-call', choice, call: call.number, id, name });
      const early = call.early;
      call.early = '';
      if (early !== '') this.#arguments(state, choice, call.number, call, early);
      return;
    }
    if (piece !== '') this.#arguments(state, choice, call.number, call, piece);
  }

  #arguments(state: ChoiceState, choice: number, number: number, call: CallState, piece: string): void {
    call.hasArguments = true;
    if (this.#options.bound?.type === 'call') (call.guard ??= new ArgumentsGuard()).arguments(piece);
    this.#emit(state, piece, { type: 'tool-arguments', choice, call: number, text: piece });
  }

  /** The answer is complete with its first call; the rest of this choice is not read. */
  #cutCalls(state: ChoiceState, choice: number): void {
    this.#checkWhole(state, undefined);
    state.isCut = true;
    this.#finish(state, choice, { type: 'finish', choice, reason: 'tool-calls' });
    if (this.isFinished) this.#state = 'cut-short';
  }

  /** The call that a fragment belongs to. A backend's index only distinguishes calls; ours count from 0 without gaps. */
  #callAt(state: ChoiceState, raw: JsonObject, position: number): CallState {
    const { byIndex, all } = state.calls;
    const index = raw['index'] ?? this.#guessedIndex(state, raw, position);
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= toolCallsMax) {
      throw new StreamFault('the index of a tool call is out of range');
    }
    let call = byIndex.get(index as number);
    if (call === undefined || isAnother(call, raw)) {
      if (all.length >= toolCallsMax) throw new StreamFault('there are too many tool calls');
      call = {
        index: index as number,
        number: undefined,
        id: undefined,
        early: '',
        hasArguments: false,
        guard: undefined,
      };
      all.push(call);
      byIndex.set(index as number, call);
      state.calls.lastIndex = index as number;
    }
    return call;
  }

  /** Without an index: a fragment with a new id or a name begins a call, any other continues that of its id, or the last. */
  #guessedIndex(state: ChoiceState, raw: JsonObject, position: number): number {
    const { byIndex, lastIndex, all } = state.calls;
    if (byIndex.size === 0) return position;
    const id = idOf(raw);
    const known = id === undefined ? undefined : all.findLast((call) => call.id === id);
    if (known !== undefined) return known.index;
    return id !== undefined || nameOf(raw) !== '' ? lastIndex + 1 : lastIndex;
  }

  #finishReason(state: ChoiceState, choice: number, raw: unknown, fields: JsonObject): void {
    if (typeof raw !== 'string') throw new StreamFault('expected a string at finish_reason');
    if (state.isFinished) return;
    if (state.calls.all.some((call) => call.number === undefined)) {
      throw new StreamFault('expected a name in a tool call');
    }
    const held = this.#options.echo?.rest() ?? '';
    if (held !== '') this.#content(state, choice, held, undefined);
    const unstopped = state.stop?.matcher.flush() ?? '';
    if (unstopped !== '')
      this.#content(state, choice, unstopped, this.#options.logprobs === undefined ? undefined : []);
    const reason = finishReasonOf(raw);
    if (reason === undefined) throw new StreamFault('the backend aborted the answer');
    // vLLM names the stop in `stop_reason`, SGLang in `matched_stop`; both give a token id or a text.
    const stop = state.stop?.matched ?? fields['stop_reason'] ?? fields['matched_stop'];
    // Held text belongs to the answer, so it is added before the check for completeness.
    this.#endReading(state, choice);
    if (reason !== 'length' && raw !== 'content_filter') this.#checkWhole(state, stop);
    this.#finish(state, choice, {
      type: 'finish',
      choice,
      // Servers disagree on `stop` or `tool_calls` for a forced call, and some send the latter for an answer without one.
      reason: reason === 'length' ? reason : state.calls.named > 0 ? 'tool-calls' : 'stop',
      ...(typeof stop === 'string' && reason === 'stop' ? { stopSequence: stop } : {}),
      ...(Number.isInteger(stop) && reason === 'stop' ? { stopTokenId: stop as number } : {}),
      ...(raw === 'repetition' ? { cause: 'repetition' as const } : {}),
    });
  }

  /** The stream is over: what has a call and no finish reason is a whole call. */
  #finishCalls(): void {
    for (const [choice, state] of this.#choices.entries())
      if (!state.isFinished && state.calls.named > 0) this.#finishReason(state, choice, 'tool_calls', {});
  }

  /** Checks that an answer ended by its server satisfies its bound. */
  #checkWhole(state: ChoiceState, stop: unknown): void {
    state.guard?.end(stop);
    if (this.#options.bound?.type !== 'call') return;
    if (state.calls.named === 0) throw new UnboundFault('the forced tool call is missing', false);
    for (const call of state.calls.all) call.guard?.end();
  }

  #finish(state: ChoiceState, choice: number, event: Extract<GenerationEvent, { type: 'finish' }>): void {
    this.#start();
    this.#endReading(state, choice);
    this.#endThinking(state, choice);
    // Clients parse them, so empty arguments become an object without fields.
    for (const call of event.reason === 'length' ? [] : state.calls.all)
      if (call.number !== undefined && !call.hasArguments) this.#arguments(state, choice, call.number, call, '{}');
    state.isFinished = true;
    state.awaitsUsage = true;
    this.#finished++;
    this.#out.push(event);
  }

  #emit(state: ChoiceState, characters: string, event: GenerationEvent): void {
    if (state.isFinished) throw new StreamFault('text after the finish reason');
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

  #readUsage(only: unknown, count: number, usage: JsonObject): void {
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
    const isClosing = this.#state === 'reading' && this.isFinished && count === 0;
    if (isClosing && this.#choices.every((state) => !state.awaitsUsage)) this.#state = 'closed';
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
  /** Ended by us, before the server did. */
  isCut: boolean;
  /** The answer contains reasoning whose end tag has not come. */
  isThinking: boolean;
  /** Looks for think tags, until the answer has begun. */
  reader: OutputParser | undefined;
  awaitsUsage: boolean;
  /** Its prompt has been reported, or there is nothing to report. */
  hasPrompt: boolean;
  characters: number;
  readonly logprobs: TokenLogprob[];
  readonly guard: TextGuard | undefined;
  /** Looks for stop sequences, and the one that was found. */
  readonly stop: { readonly matcher: StopMatcher; matched: string | undefined } | undefined;
  readonly calls: {
    /** The last call at each of the backend's indexes. */
    readonly byIndex: Map<number, CallState>;
    readonly all: CallState[];
    lastIndex: number;
    named: number;
  };
}

interface CallState {
  /** The backend's index. */
  readonly index: number;
  /** Our number; known when the name is. */
  number: number | undefined;
  id: string | undefined;
  /** Arguments that came before the name. */
  early: string;
  hasArguments: boolean;
  guard: ArgumentsGuard | undefined;
}

/** The marks that nearly all models have; a server whose model has others is to split them itself. */
const thinking = { type: 'marks', marks: { start: '<think>', end: '</think>' } } as const;

const newChoiceState = ({ splitsThinking, bound, stops, onUnchecked = () => {} }: DecoderOptions): ChoiceState => ({
  isFinished: false,
  isCut: false,
  isThinking: false,
  reader: splitsThinking
    ? new OutputParser({ shape: { thinking, calls: hermes }, startsInThought: false, calls: undefined })
    : undefined,
  awaitsUsage: false,
  hasPrompt: false,
  characters: 0,
  logprobs: [],
  guard: bound?.type === 'text' ? new TextGuard(bound, onUnchecked) : undefined,
  stop: stops === undefined || stops.length === 0 ? undefined : { matcher: new StopMatcher(stops), matched: undefined },
  calls: { byIndex: new Map(), all: [], lastIndex: 0, named: 0 },
});

/** The text that is certainly before a stop sequence; the tokens of held text wait with it, and go with the sequence. */
function beforeStop(
  { stop, logprobs: waiting }: ChoiceState,
  piece: string,
  logprobs: readonly TokenLogprob[] | undefined,
): string {
  if (stop === undefined || stop.matched !== undefined) return '';
  const { text, matched } = stop.matcher.push(piece);
  stop.matched = matched;
  if (text !== '') return text;
  if (matched !== undefined) waiting.length = 0;
  else waiting.push(...(logprobs ?? []));
  return text;
}

/** Some servers give every call the same index; a fragment that begins another call has another id, and a name. */
function isAnother(call: CallState, raw: JsonObject): boolean {
  const id = idOf(raw);
  return call.number !== undefined && call.id !== undefined && id !== undefined && id !== call.id && nameOf(raw) !== '';
}

function idOf(raw: JsonObject): string | undefined {
  return typeof raw['id'] === 'string' && raw['id'] !== '' ? raw['id'] : undefined;
}

function nameOf(raw: JsonObject): string {
  return isObject(raw['function']) ? text(raw['function']['name']) : '';
}

function parseObject(json: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    // Without the parser's message, which quotes the text.
    throw new StreamFault('invalid JSON');
  }
  if (!isObject(value)) throw new StreamFault('expected an object as event');
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
  throw new StreamFault('expected a string as text');
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
  // vLLM's are `chatcmpl-tool-…`.
  return raw.startsWith('call_') ? raw : `call_${raw.replace(/^chatcmpl-tool-/, '')}`;
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

/** Tokens with their logprobs; the first may have none because nothing precedes it. */
function promptTokensOf(raw: unknown, topMax: number): readonly PromptToken[] | undefined {
  const found = logprobsOf(raw, topMax);
  const values: unknown = isObject(raw) ? raw['token_logprobs'] : undefined;
  return found?.map((token, index): PromptToken => {
    // vLLM names tokens so on request.
    const [, id] = /^token_id:(\d{1,9})$/.exec(token.token) ?? [];
    const named = id === undefined ? token : { ...token, tokenId: Number(id), top: token.top.map(withId) };
    return index === 0 && Array.isArray(values) && values[0] === null ? { ...named, logprob: undefined } : named;
  });
}

function withId(token: TokenProbability): TokenProbability {
  const [, id] = /^token_id:(\d{1,9})$/.exec(token.token) ?? [];
  return id === undefined ? token : { ...token, tokenId: Number(id) };
}

function idsOf(raw: unknown): readonly number[] | undefined {
  if (raw === undefined || raw === null) return undefined;
  const isId = (id: unknown): id is number => Number.isSafeInteger(id) && Number(id) >= 0;
  if (!Array.isArray(raw) || !raw.every(isId)) throw new StreamFault('expected token ids as integers');
  return raw;
}

const idsNotReturned = (): ApiError =>
  new ApiError('unsupported_parameter', "The model does not support 'return_token_ids'.", {
    param: 'return_token_ids',
  });

/** Both shapes: chat's list of tokens, and the parallel arrays of text completions. */
function logprobsOf(raw: unknown, topMax: number): readonly TokenLogprob[] | undefined {
  if (!isObject(raw)) return undefined;
  const { content, tokens } = raw;
  if (Array.isArray(content)) return content.map((one) => chatLogprob(one, topMax));
  if (!Array.isArray(tokens)) return undefined;
  const values = Array.isArray(raw['token_logprobs']) ? raw['token_logprobs'] : [];
  const tops = Array.isArray(raw['top_logprobs']) ? raw['top_logprobs'] : [];
  return tokens.map((token: unknown, i) => ({
    token: text(token),
    tokenId: undefined,
    bytes: undefined,
    logprob: logprob(values[i]),
    top: isObject(tops[i])
      ? Object.entries(tops[i]).map(([top, value]) => ({
          token: top,
          tokenId: undefined,
          bytes: undefined,
          logprob: logprob(value),
        }))
      : [],
  }));
}

function chatLogprob(raw: unknown, topMax: number): TokenLogprob {
  if (!isObject(raw)) throw new StreamFault('expected an object as logprob');
  const top: unknown[] = Array.isArray(raw['top_logprobs']) ? raw['top_logprobs'] : [];
  return { ...tokenOf(raw), top: top.filter(isObject).slice(0, topMax).map(tokenOf) };
}

function tokenOf(raw: JsonObject): TokenProbability {
  const { id, bytes } = raw;
  return {
    token: text(raw['token']),
    tokenId: Number.isInteger(id) ? (id as number) : undefined,
    bytes: Array.isArray(bytes) && bytes.every(isByte) ? bytes : undefined,
    logprob: logprob(raw['logprob']),
  };
}

const isByte = (value: unknown): value is number =>
  Number.isInteger(value) && Number(value) >= 0 && Number(value) < 256;

/** JSON has no −∞; servers write −9999 or null for it. */
function logprob(value: unknown): number {
  return typeof value === 'number' ? Math.min(value, 0) : -9_999;
}
