import type { GenerationEvent } from '../../../generation/event.ts';
import { ChoiceOutput, type OutputForm } from './choice-output.ts';
import type { PromptEcho } from './prompt-echo.ts';
import type { Direction, JobEnding, JobReader, MadeToken } from './job.ts';
import type { Rpc } from '../../../platform/rpc/rpc.ts';
import { unreadTokensMax, type HostCalls, type Refusal } from './protocol.ts';
import { engineFailure } from './refusal.ts';

export interface DeliveryOptions {
  readonly request: number;
  /** Tokens of each prompt. */
  readonly promptTokens: readonly number[];
  /** Answers to each prompt: choice = prompt × choices + i. */
  readonly choices: number;
  readonly form: OutputForm;
  /** What each choice reports about its prompt; `undefined`: nothing. */
  readonly echo?: ((prompt: number) => PromptEcho) | undefined;
  /** The request field with the answer's constraint, for its error. */
  readonly constraintParam: string | undefined;
  readonly host: Pick<Rpc<HostCalls>, 'note'>;
  /** Called when all choices have ended, or one failed and the others must be given up. */
  readonly over: (outcome: { readonly failed: boolean }) => void;
}

/**
 * - `new`: nothing has been sent.
 * - `started`: `start` has been sent, and the first token will be sent immediately.
 * - `flowing`: output is sent in batches, at most every 10 ms.
 * - `closed`: nothing more is sent.
 */
type State = 'new' | 'started' | 'flowing' | 'closed';

/**
 * The path of one request's output to its reader: tokens become events (`choice-output.ts`), which are sent every 10 ms in one message with
 * the usage so far, so that a stream given up in the middle is billed for what was generated. The first token is sent immediately.
 */
export class Delivery {
  readonly #options: DeliveryOptions;
  readonly #choices: readonly ChoiceOutput[];
  readonly #cached: (number | undefined)[];
  /** Echoes of prompts that have not been reported yet. */
  readonly #echoes = new Map<number, PromptEcho>();
  #prompts: GenerationEvent[] = [];
  #ready: GenerationEvent[] = [];
  #state: State = 'new';
  #open: number;
  #completionTokens = 0;
  #unsentTokens = 0;
  #unreadTokens = 0;
  #sentAtMs = 0;
  #readAtMs = 0;
  /** A scheduled flush. */
  #timer: NodeJS.Timeout | undefined;

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#cached = options.promptTokens.map(() => undefined);
    this.#open = options.promptTokens.length * options.choices;
    this.#choices = Array.from({ length: this.#open }, (_, choice) => new ChoiceOutput(choice, options.form));
    if (options.echo !== undefined)
      for (const choice of this.#choices.keys())
        this.#echoes.set(choice, options.echo(Math.floor(choice / options.choices)));
  }

  /** Returns the loop's reader for one choice. */
  reader(choice: number): JobReader {
    const reply = this.#choices[choice];
    if (reply === undefined) throw new Error('no such choice');
    // An arrow function, because `takesMore` is read at every step.
    const takesMore = () => this.#unreadTokens < unreadTokensMax;
    return {
      get takesMore() {
        return takesMore();
      },
      get tokensBeyond() {
        return reply.tokensBeyond;
      },
      started: (cachedTokens) => this.#start(choice, cachedTokens),
      reads: () => this.#reads(),
      scored: (logprobs) => this.#echoes.get(choice)?.push(logprobs),
      token: (token) => this.#token(choice, reply, token),
      insteadOfEnd: () => reply.insteadOfEnd(),
      ended: (ending) => this.#end(choice, reply, ending),
    };
  }

  /** Records that the reader took tokens. */
  taken(tokens: number): void {
    this.#unreadTokens = Math.max(0, this.#unreadTokens - tokens);
  }

  /** Stops sending. */
  close(): void {
    this.#state = 'closed';
    clearTimeout(this.#timer);
  }

  /** Sends `start` with the first choice, before its prompt is read. */
  #start(choice: number, cachedTokens: number): void {
    const prompt = Math.floor(choice / this.#options.choices);
    // The prompt counts once, no matter how many choices read it, so only the first choice's cached tokens count.
    this.#cached[prompt] ??= cachedTokens;
    if (this.#state !== 'new') return;
    this.#state = 'started';
    const promptTokens = sum(this.#options.promptTokens);
    this.#send([{ type: 'start', promptTokens, ...(this.#cached.length === 1 ? { cachedTokens } : {}) }], false);
  }

  #reads(): void {
    const nowMs = performance.now();
    if (this.#state === 'closed' || nowMs - this.#readAtMs < readsEveryMs) return;
    this.#readAtMs = nowMs;
    this.#options.host.note('reading', this.#options.request);
  }

  /** Reports the prompt, before anything else about its choice and after it has been read. */
  #reportPrompt(choice: number): void {
    const echo = this.#echoes.get(choice);
    if (echo === undefined) return;
    this.#echoes.delete(choice);
    this.#prompts.push({ type: 'prompt', choice, ...echo.read() });
  }

  #token(choice: number, reply: ChoiceOutput, token: MadeToken): Direction | undefined {
    this.#reportPrompt(choice);
    this.#completionTokens++;
    this.#unsentTokens++;
    this.#unreadTokens++;
    const direction = reply.token(token);
    // No timer fires during a step on this thread, so due output is sent before it.
    const isDue = performance.now() - this.#sentAtMs >= coalesceMs;
    if (this.#state === 'started' || (this.#state === 'flowing' && isDue)) this.#flush(false);
    else if (this.#state === 'flowing') this.#timer ??= setTimeout(() => this.#flush(false), coalesceMs);
    return direction;
  }

  #end(choice: number, reply: ChoiceOutput, ending: JobEnding): void {
    if (this.#state === 'closed') return;
    switch (ending.type) {
      case 'cancelled':
        return;
      case 'failed':
        this.#fail(engineFailure(ending.detail));
        return;
      case 'too-slow':
        this.#fail(tooSlow(this.#options.constraintParam));
        return;
      case 'stop':
      case 'length': {
        this.#reportPrompt(choice);
        const reason = reply.end(ending);
        const { type: _, ...details } = ending;
        this.#ready.push(...reply.drain(), { type: 'finish', choice, reason, ...details });
        this.#open--;
        if (this.#open === 0) {
          this.#flush(true);
          this.close();
          this.#options.over({ failed: false });
        } else this.#timer ??= setTimeout(() => this.#flush(false), coalesceMs);
      }
    }
  }

  #fail(refusal: Refusal): void {
    this.close();
    this.#options.host.note('refused', { request: this.#options.request, refusal });
    this.#options.over({ failed: true });
  }

  #flush(last: boolean): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sentAtMs = performance.now();
    if (this.#state === 'started') this.#state = 'flowing';
    const events: GenerationEvent[] = this.#prompts;
    this.#prompts = [];
    let reasoningTokens = 0;
    for (const reply of this.#choices) {
      events.push(...reply.drain());
      reasoningTokens += reply.reasoningTokens;
    }
    events.push(...this.#ready, {
      type: 'usage',
      usage: {
        promptTokens: sum(this.#options.promptTokens),
        cachedTokens: sum(this.#cached.map((tokens) => tokens ?? 0)),
        completionTokens: this.#completionTokens,
        reasoningTokens,
      },
    });
    this.#ready = [];
    this.#send(events, last);
  }

  #send(events: readonly GenerationEvent[], last: boolean): void {
    if (this.#state === 'closed') return;
    this.#options.host.note('events', { request: this.#options.request, events, tokens: this.#unsentTokens, last });
    this.#unsentTokens = 0;
  }
}

const coalesceMs = 10;
const readsEveryMs = 200;

/** See contracts decision 13. */
function tooSlow(param: string | undefined): Refusal {
  return {
    code: 'unsupported_value',
    message: 'The grammar is too slow to enforce: a token took more than two seconds. Make it less ambiguous.',
    param,
    extra: {},
    detail: 'the constraint takes too long',
  };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
