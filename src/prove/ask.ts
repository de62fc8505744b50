import { promptOf, type Truth } from './scripted-upstream.ts';

/** The gateway, as its clients see it. */
export interface Gateway {
  /** Base address, without `/v1`. */
  readonly url: string;
  readonly model: string;
}

export interface Asking {
  readonly stream: boolean;
  /** Leaves after this number of tokens; 0: as soon as the upstream works on it. */
  readonly leaveAfter?: number;
  readonly idempotencyKey?: string;
  readonly timeoutMs?: number;
}

/** What a client got. */
export interface Answer {
  /** 0: none. */
  readonly status: number;
  /** The whole answer, as the protocol ends one, and no error in it. */
  readonly isWhole: boolean;
  readonly tokens: number;
  /** Text that is not of this answer. */
  readonly foreign: string;
  readonly retryAfter: string | null;
  /** When each token came, by `performance.now()`. */
  readonly cameAt: readonly number[];
}

const answerBytesMax = 16 * 1024 * 1024;

/** Sends one chat completion, and reads its answer to the end, or to where this client leaves. */
export async function ask(gateway: Gateway, key: string, truth: Truth, asking: Asking): Promise<Answer> {
  const leaving = new AbortController();
  const { stream, leaveAfter, idempotencyKey } = asking;
  const timeout = setTimeout(() => leaving.abort(), asking.timeoutMs ?? 60_000);
  const reading = new Reading(truth, stream);
  const watch = leaveAfter === 0 ? setInterval(() => truth.running > 0 && leaving.abort(), 1) : undefined;
  try {
    const response = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        ...(idempotencyKey === undefined ? {} : { 'idempotency-key': idempotencyKey }),
      },
      body: JSON.stringify({
        model: gateway.model,
        messages: [{ role: 'user', content: promptOf(truth) }],
        max_tokens: truth.plan.completionTokens,
        ...(stream ? { stream: true, stream_options: { include_usage: true } } : {}),
      }),
      signal: leaving.signal,
    });
    reading.begin(response);
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) {
      const tokens = reading.take(decoder.decode(bytes, { stream: true }));
      // Waiting for the next bytes after an abort may last for ever, when the answer has ended already.
      if (leaveAfter !== undefined && leaveAfter > 0 && tokens >= leaveAfter) throw new Error('left');
    }
    return reading.end(true);
  } catch {
    leaving.abort();
    return reading.end(false);
  } finally {
    clearInterval(watch);
    clearTimeout(timeout);
  }
}

/** One answer while it is read. */
class Reading {
  readonly #truth: Truth;
  readonly #isStream: boolean;
  readonly #cameAt: number[] = [];
  #response: Response | undefined;
  #unread = '';
  #text = '';
  #seen = { finish: false, done: false, error: false };

  constructor(truth: Truth, isStream: boolean) {
    this.#truth = truth;
    this.#isStream = isStream;
  }

  begin(response: Response): void {
    this.#response = response;
  }

  /** Returns the tokens so far. */
  take(text: string): number {
    this.#unread += text;
    if (this.#unread.length > answerBytesMax) throw new RangeError('the answer does not end');
    if (!this.#isStream) return 0;
    const events = this.#unread.split(/\r?\n\r?\n/);
    this.#unread = events.pop() ?? '';
    for (const event of events) this.#event(event);
    return this.#cameAt.length;
  }

  #event(event: string): void {
    const data = event
      .split(/\r?\n/)
      .filter((line) => line.startsWith('data:'))
      .map((line) => line.slice(5).trim())
      .join('\n');
    if (data === '') return;
    if (data === '[DONE]') this.#seen.done = true;
    else this.#object(data);
  }

  #object(text: string): void {
    const { error, choices = [] } = parsed(text);
    if (error !== undefined && error !== null) this.#seen.error = true;
    for (const { delta, message, finish_reason: reason } of choices) {
      const content = (delta ?? message)?.content;
      if (typeof content === 'string' && content !== '') {
        this.#text += content;
        for (let count = tokensIn(content); count > 0; count--) this.#cameAt.push(performance.now());
      }
      if (reason !== undefined && reason !== null) this.#seen.finish = true;
    }
  }

  end(cleanly: boolean): Answer {
    const response = this.#response;
    if (cleanly && response !== undefined && !this.#isStream && this.#unread !== '') this.#object(this.#unread);
    const { finish, done, error } = this.#seen;
    return {
      status: response?.status ?? 0,
      isWhole: cleanly && response?.status === 200 && finish && !error && (done || !this.#isStream),
      tokens: this.#cameAt.length,
      foreign: this.#text.replaceAll(this.#truth.word, '').trim().slice(0, 200),
      retryAfter: response?.headers.get('retry-after') ?? null,
      cameAt: this.#cameAt,
    };
  }
}

const tokensIn = (text: string): number => text.trim().split(/\s+/).length;

interface Completion {
  readonly error?: unknown;
  readonly choices?: readonly {
    readonly delta?: { readonly content?: unknown };
    readonly message?: { readonly content?: unknown };
    readonly finish_reason?: unknown;
  }[];
}

function parsed(text: string): Completion {
  try {
    return JSON.parse(text) as Completion;
  } catch {
    return { error: text };
  }
}
