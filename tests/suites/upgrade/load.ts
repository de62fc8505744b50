import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';

/** How soon a client asks again that nobody has answered. */
const pauseMs = 25;

/** What a client was told at the end of an answer. */
interface ReportedUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
}

/** Clients that ask all the time, wherever the service is just now, and know what each answer costs. */
export class Load {
  /** Addresses of services; whoever is not answered by one tries the next. */
  targets: readonly string[];
  /** Microcents of all answers, by the tokens that clients were told. */
  cost = 0n;
  answered = 0;
  readonly answeredBy = new Map<string, number>();
  /** Requests that nobody has taken: they were sent again. */
  refused = 0;
  /** The longest time without an answer to anybody. */
  longestGapMs = 0;
  readonly #key: string;
  readonly #clients: readonly Promise<void>[];
  #answeredAt = performance.now();
  #isOver = false;

  constructor(key: string, targets: readonly string[], clients = 4) {
    this.#key = key;
    this.targets = targets;
    this.#clients = Array.from({ length: clients }, (_, index) => this.#run(index));
    for (const client of this.#clients) client.catch(() => {}); // `stop` hears of it
  }

  /** Rejects with the first thing that a client did not expect. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients);
  }

  async #run(index: number): Promise<void> {
    for (let turn = index; !this.#isOver; turn++) {
      const target = this.targets[turn % this.targets.length]!;
      const reported = await this.#ask(target, turn % 2 === 0);
      if (reported === undefined) {
        this.refused++;
        await delay(pauseMs);
        continue;
      }
      this.cost += BigInt(5 * reported.prompt_tokens + 20 * reported.completion_tokens);
      this.answered++;
      this.answeredBy.set(target, (this.answeredBy.get(target) ?? 0) + 1);
      this.longestGapMs = Math.max(this.longestGapMs, performance.now() - this.#answeredAt);
      this.#answeredAt = performance.now();
    }
  }

  /** Undefined: the service is not there, or takes no more requests. */
  async #ask(target: string, isStreamed: boolean): Promise<ReportedUsage | undefined> {
    const body = {
      model: 'demo',
      messages: [{ role: 'user', content: isStreamed ? 'long' : 'short' }],
      ...(isStreamed ? { stream: true, stream_options: { include_usage: true } } : {}),
    };
    const answer = await fetch(`${target}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${this.#key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    }).catch(() => undefined);
    if (answer === undefined) return undefined;
    // What has begun is brought to its end, also by a service that stops.
    const text = await answer.text();
    // It stops, or this machine is too busy: the request was not taken, and cost nothing.
    if ([429, 500, 503].includes(answer.status)) return undefined;
    assert.equal(answer.status, 200, text);
    if (!isStreamed) return (JSON.parse(text) as { usage: ReportedUsage }).usage;
    assert.match(text, /data: \[DONE\]\n\n$/);
    const chunks = text.split('\n\n').filter((line) => line.startsWith('data: {'));
    return (JSON.parse(chunks.at(-1)!.slice('data: '.length)) as { usage: ReportedUsage }).usage;
  }
}
