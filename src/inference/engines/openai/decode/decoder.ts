import type { FinishReason, GenerationEvent } from '../../../../generation/event.ts';
import { ChunkTemplate } from '../chunk-template.ts';
import { tokenCharactersMax } from '../../usage-tally.ts';
import { usageIn } from '../reported-usage.ts';
import { StreamFault } from '../sse.ts';
import { CallIds, ChoiceCalls } from './calls.ts';
import { AnswerEvents, ChoiceEvents } from './choice-events.ts';
import { ChatChoice } from './chat-choice.ts';
import { CompletionChoice } from './completion-choice.ts';
import { finishKindOf, isFinish } from './finishes.ts';
import { isObject, parseObject, type JsonObject } from './json.ts';
import type { DecoderOptions } from './options.ts';
import { ChoiceTexts } from './texts.ts';
import { UsageReader } from './usage.ts';

/** An error inside an answer instead of in an HTTP status: the parsed body, for the classifier. */
export class InBandError extends Error {
  override readonly name = 'InBandError';
  readonly body: unknown;
  constructor(body: unknown) {
    super('the backend reported an error inside its answer');
    this.body = body;
  }
}

/** An answer of fewer chunks makes no template. */
const chunksBeforeTemplate = 8;

/**
 * - `reading`: more of the answer may come.
 * - `closed`: its closing usage has come; anything after it is still checked.
 * - `done`: anything after it is dropped.
 * - `cut-short`: like `done`, and the server, which would go on, is stopped.
 */
type State = 'reading' | 'closed' | 'done' | 'cut-short';

/**
 * Turns the chunks of chat completions and text completions into events. It trusts nothing: indexes, names and counts are bounded, an event
 * that cannot be interpreted is a fault and is never skipped (reliability U8, U10, U11).
 *
 * Decisions on U11: a second finish of a choice and everything after `[DONE]` change nothing and are dropped; text after the finish of its
 * choice is a fault, because neither showing nor hiding it would be right.
 */
export class ChunkDecoder {
  readonly #options: DecoderOptions;
  readonly #events: AnswerEvents;
  readonly #usage: UsageReader;
  readonly #choices: ChoiceState[];
  #state: State = 'reading';
  #finished = 0;
  #template: ChunkTemplate | undefined;
  /** Chunks to parse before making a template, which costs as much as parsing five; more after each failed attempt. */
  #templatePatience = chunksBeforeTemplate;
  #templatePause = chunksBeforeTemplate;

  constructor(options: DecoderOptions) {
    this.#options = options;
    this.#events = new AnswerEvents(options.tally);
    this.#usage = new UsageReader(options);
    this.#choices = [];
    const ids = new CallIds(options.requestId);
    for (let choice = 0; choice < options.choices; choice++) {
      this.#choices.push(newChoiceState(new ChoiceEvents(choice, this.#events), ids, options));
    }
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

  /** Returns the events since the last call, and the usage up to them; empty if there are none yet. */
  drain(): GenerationEvent[] {
    const usage = this.#events.hasStarted ? this.#usage.news() : undefined;
    return this.#events.drain(usage);
  }

  /** Whether the backend has reported a usage that cannot be true (reliability U10). */
  get isUsageDoubted(): boolean {
    return this.#options.tally.isDoubted;
  }

  /** Reads one event of the stream. */
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
      // Not an error body, because the template's chunk was not one.
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

  /** Reads a complete answer, from a server that does not stream. */
  whole(body: string): void {
    const answer = parseObject(body);
    if (isErrorBody(answer) || !Array.isArray(answer['choices'])) throw new InBandError(answer);
    this.#options.served?.heard(answer['model']);
    this.chunk(answer);
    if (!this.isFinished) throw new StreamFault('expected a finish reason in the answer');
    this.#state = 'done';
  }

  chunk(chunk: JsonObject): void {
    const choices = chunk['choices'];
    if (choices !== undefined && choices !== null && !Array.isArray(choices)) throw new StreamFault('choices');
    const list: readonly unknown[] = Array.isArray(choices) ? choices : noChoices;
    const progress = chunk['prompt_progress'];
    if (isObject(progress)) {
      this.#options.tally.prompt(this.#indexOf(list[0]) ?? 0, progress['total'], progress['cache']);
    }
    const usage = usageIn(chunk);
    // Before the text, because the first text emits `start` with it, and after it, because it includes it.
    if (usage !== undefined && !this.#events.hasStarted) this.#usage.beforeText(this.#indexOf(list[0]), usage);
    for (let i = 0; i < list.length; i++) this.#choice(list[i]);
    if (usage !== undefined) this.#readUsage(list, usage);
  }

  /**
   * Whether a backend has written beyond the token limit, so that all choices end there (reliability U9). The limit is twice `max_tokens`
   * deltas, because a token can make two deltas, or that many of the longest possible tokens.
   */
  get isOverrun(): boolean {
    const { maxTokens, tally } = this.#options;
    return this.#choices.some(
      ({ events }, index) =>
        tally.deltas(index) > 2 * maxTokens + 64 || events.characters > tokenCharactersMax * (maxTokens + 64),
    );
  }

  /** Whether the answer ended before its server did, so that the rest is not needed. */
  get isCutShort(): boolean {
    return this.#state === 'cut-short';
  }

  cut(): void {
    for (const state of this.#choices) {
      const { choice, isFinished } = state.events;
      if (!isFinished) this.#finish(state, { type: 'finish', choice, reason: 'length', cause: 'max-tokens' });
    }
    this.#state = 'done';
  }

  #choice(choice: unknown): void {
    if (!isObject(choice)) throw new StreamFault('expected an object in choices');
    const state = this.#choices[this.#index(choice['index'])]!;
    if (state.isCut) return;
    state.reading.read(choice);
    if (state.reading.isOver) this.#cutCalls(state);
    // Moonshot reports usage here.
    if (isObject(choice['usage'])) this.#usage.read(state.events.choice, 1, choice['usage']);
    if (isFinish(choice['finish_reason'])) this.#finishReason(state, choice['finish_reason'], choice);
  }

  /** Ends a choice with its first call; the rest of it is not read. */
  #cutCalls(state: ChoiceState): void {
    this.#checkWhole(state, undefined);
    state.isCut = true;
    this.#finish(state, { type: 'finish', choice: state.events.choice, reason: 'tool-calls' });
    if (this.isFinished) this.#state = 'cut-short';
  }

  #finishReason(state: ChoiceState, raw: unknown, fields: JsonObject): void {
    if (typeof raw !== 'string') throw new StreamFault('expected a string at finish_reason');
    const { events, texts, calls } = state;
    if (events.isFinished) return;
    const kind = finishKindOf(raw);
    if (kind === undefined) this.#options.onUnknownFinish?.(raw);
    if (kind === 'failed') throw new StreamFault('the backend aborted the answer');
    this.#options.tally.releases(events.choice);
    const reason: FinishReason = kind === 'length' ? 'length' : kind === 'calls' ? 'tool-calls' : 'stop';
    calls.end(reason);
    // Held text belongs to the answer, so it is added before the check for completeness.
    texts.release();
    // vLLM names the stop in `stop_reason`, SGLang in `matched_stop`; both give a token id or a text.
    const stop = texts.matchedStop ?? fields['stop_reason'] ?? fields['matched_stop'];
    if (kind !== 'length' && kind !== 'filtered') this.#checkWhole(state, stop);
    this.#finish(state, {
      type: 'finish',
      choice: events.choice,
      // Servers disagree on `stop` or `tool_calls` for a forced call, and some send the latter for an answer without one.
      reason: reason === 'length' ? reason : calls.count > 0 ? 'tool-calls' : 'stop',
      ...(typeof stop === 'string' && reason === 'stop' ? { stopSequence: stop.toWellFormed() } : {}),
      ...(Number.isInteger(stop) && reason === 'stop' ? { stopTokenId: stop as number } : {}),
      ...(raw === 'repetition' ? { cause: 'repetition' as const } : {}),
    });
  }

  /** Ends choices when the stream is over: one with a call and no finish reason has a whole call. */
  #finishCalls(): void {
    for (const state of this.#choices)
      if (!state.events.isFinished && state.calls.count > 0) this.#finishReason(state, 'tool_calls', {});
  }

  /** Checks that an answer ended by its server satisfies its bound. */
  #checkWhole({ texts, calls }: ChoiceState, stop: unknown): void {
    texts.guard?.end(stop);
    calls.checkWhole();
  }

  #finish(state: ChoiceState, event: Extract<GenerationEvent, { type: 'finish' }>): void {
    const { events, texts, calls, reading } = state;
    events.start();
    texts.endReading();
    texts.endThinking();
    if (reading instanceof CompletionChoice) reading.end();
    calls.flush(event.reason);
    events.finish(event);
    this.#usage.finished(event.choice);
    this.#finished++;
  }

  #readUsage(choices: readonly unknown[], usage: JsonObject): void {
    const only = choices.length === 1 ? choices[0] : undefined;
    // Usage next to a choice counts that choice; in a complete answer it counts the request, which is the same for one choice.
    const counted = isObject(only) && only['message'] === undefined ? this.#indexOf(only) : undefined;
    if (!this.#usage.read(counted, choices.length, usage)) return;
    const isClosing = this.#state === 'reading' && this.isFinished && choices.length === 0;
    if (isClosing && this.#usage.isSettled) this.#state = 'closed';
  }

  #indexOf(choice: unknown): number | undefined {
    return isObject(choice) ? this.#index(choice['index']) : undefined;
  }

  #index(raw: unknown): number {
    const index = raw ?? 0;
    if (!Number.isInteger(index) || (index as number) < 0 || (index as number) >= this.#choices.length) {
      throw new StreamFault('the index of a choice is out of range');
    }
    return index as number;
  }
}

const noChoices: readonly unknown[] = [];

interface ChoiceState {
  readonly events: ChoiceEvents;
  readonly texts: ChoiceTexts;
  readonly calls: ChoiceCalls;
  readonly reading: ChatChoice | CompletionChoice;
  /** Ended here, before the server ended it. */
  isCut: boolean;
}

function newChoiceState(events: ChoiceEvents, ids: CallIds, options: DecoderOptions): ChoiceState {
  const texts = new ChoiceTexts(events, options);
  const calls = new ChoiceCalls(events, ids, options);
  const { completion } = options;
  const reading =
    completion === undefined
      ? new ChatChoice(events, texts, calls, options)
      : new CompletionChoice(events, texts.guard, options, completion);
  return { events, texts, calls, reading, isCut: false };
}

/** Recognizes `{"error": …}`, and vLLM's older form, `{"object": "error", …}`. */
function isErrorBody(chunk: JsonObject): boolean {
  return (chunk['error'] !== undefined && chunk['error'] !== null) || chunk['object'] === 'error';
}
