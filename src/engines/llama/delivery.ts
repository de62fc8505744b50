import type { GenerationEvent } from '../../generation/event.ts';
import type { JobEnding, JobReader } from './loop.ts';
import { unreadTokensMax, type ChildMessage } from './protocol.ts';
import { StopMatcher } from './stop.ts';
import { IncrementalText } from './text.ts';

export interface DeliveryOptions {
  readonly request: number;
  /** Tokens of each prompt. */
  readonly promptTokens: readonly number[];
  /** Answers to each prompt: choice = prompt × choices + i. */
  readonly choices: number;
  readonly stop: readonly string[];
  readonly detokenize: (ids: readonly number[]) => string;
  readonly send: (message: ChildMessage) => void;
  /** All choices have ended, or one failed and the others are to be given up. */
  readonly over: (outcome: { readonly failed: boolean }) => void;
}

/**
 * The way of one request back to its reader: tokens become text, text that could begin a stop sequence waits, and what is
 * ready leaves every 10 ms in one message together with the usage so far, so that a stream which is given up in the middle is
 * billed for what was made. The first token leaves at once.
 */
export class Delivery {
  readonly #options: DeliveryOptions;
  readonly #choices: Choice[];
  readonly #cached: (number | undefined)[];
  #ready: GenerationEvent[] = [];
  #started = false;
  #open: number;
  #completionTokens = 0;
  #unsentTokens = 0;
  #unreadTokens = 0;
  #flushedOnce = false;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#cached = options.promptTokens.map(() => undefined);
    this.#open = options.promptTokens.length * options.choices;
    this.#choices = Array.from({ length: this.#open }, () => ({
      text: new IncrementalText(options.detokenize),
      stop: new StopMatcher(options.stop),
      unsent: '',
    }));
  }

  /** What the loop tells of one choice. */
  reader(choice: number): JobReader {
    // An arrow function for each: `takesMore` is asked at every step.
    const takesMore = () => this.#unreadTokens < unreadTokensMax;
    return {
      get takesMore() {
        return takesMore();
      },
      started: (cachedTokens) => this.#start(choice, cachedTokens),
      token: (id) => this.#token(choice, id),
      ended: (ending) => this.#end(choice, ending),
    };
  }

  /** The reader took tokens. */
  taken(tokens: number): void {
    this.#unreadTokens = Math.max(0, this.#unreadTokens - tokens);
  }

  /** Nothing more leaves. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  /** `start` is told with the first choice, before its prompt is read. */
  #start(choice: number, cachedTokens: number): void {
    const prompt = Math.floor(choice / this.#options.choices);
    // The prompt counts once, however many choices read it, so the first choice's share of the cache counts.
    this.#cached[prompt] ??= cachedTokens;
    if (this.#started) return;
    this.#started = true;
    const promptTokens = sum(this.#options.promptTokens);
    this.#send([{ type: 'start', promptTokens, ...(this.#cached.length === 1 ? { cachedTokens } : {}) }], false);
  }

  #token(index: number, id: number): string | undefined {
    const choice = this.#choices[index];
    if (choice === undefined) return undefined;
    this.#completionTokens++;
    this.#unsentTokens++;
    this.#unreadTokens++;
    const { text, matched } = choice.stop.push(choice.text.push(id));
    choice.unsent += text;
    if (!this.#flushedOnce) this.#flush(false);
    else this.#timer ??= setTimeout(() => this.#flush(false), coalesceMs);
    return matched;
  }

  #end(index: number, ending: JobEnding): void {
    const choice = this.#choices[index];
    if (choice === undefined || this.#closed) return;
    switch (ending.type) {
      case 'cancelled':
        return;
      case 'failed':
        this.close();
        this.#options.send({ type: 'refused', request: this.#options.request, refusal: failure(ending.detail) });
        this.#options.over({ failed: true });
        return;
      case 'stop':
      case 'length': {
        if (ending.type === 'length' || ending.stopSequence === undefined) {
          const rest = choice.stop.push(choice.text.flush());
          choice.unsent += rest.text + (rest.matched === undefined ? choice.stop.flush() : '');
        }
        const { type: reason, ...details } = ending;
        this.#ready.push({ type: 'finish', choice: index, reason, ...details });
        this.#open--;
        if (this.#open === 0) {
          this.#flush(true);
          this.close();
          this.#options.over({ failed: false });
        } else this.#timer ??= setTimeout(() => this.#flush(false), coalesceMs);
      }
    }
  }

  #flush(last: boolean): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#flushedOnce = true;
    const events: GenerationEvent[] = [];
    for (const [choice, state] of this.#choices.entries()) {
      if (state.unsent !== '') events.push({ type: 'text', choice, text: state.unsent });
      state.unsent = '';
    }
    events.push(...this.#ready, {
      type: 'usage',
      usage: {
        promptTokens: sum(this.#options.promptTokens),
        cachedTokens: sum(this.#cached.map((tokens) => tokens ?? 0)),
        completionTokens: this.#completionTokens,
        reasoningTokens: 0,
      },
    });
    this.#ready = [];
    this.#send(events, last);
  }

  #send(events: readonly GenerationEvent[], last: boolean): void {
    if (this.#closed) return;
    this.#options.send({ type: 'events', request: this.#options.request, events, tokens: this.#unsentTokens, last });
    this.#unsentTokens = 0;
  }
}

interface Choice {
  readonly text: IncrementalText;
  readonly stop: StopMatcher;
  unsent: string;
}

const coalesceMs = 10;

function failure(detail: string) {
  return {
    code: 'backend_http_error',
    message: 'The engine of this model failed while it worked on this request.',
    param: undefined,
    extra: {},
    detail,
  } as const;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
