import { between, chance, type Random } from './chance.ts';
import type { Habits } from './habits.ts';

/** How a server writes values as JSON, events and reads of its socket. */
export class Framing {
  readonly #habits: Habits;
  readonly #random: Random;

  constructor(habits: Habits, random: Random) {
    this.#habits = habits;
    this.#random = random;
  }

  json(value: unknown): string {
    switch (this.#habits.json) {
      case 'tight':
        return JSON.stringify(value);
      case 'spaced':
        return JSON.stringify(value, null, 1)
          .replaceAll(/([{[])\n */g, '$1')
          .replaceAll(/\n *([}\]])/g, '$1')
          .replaceAll(/\n */g, ' ');
      case 'ascii':
        return JSON.stringify(value).replaceAll(
          /[\u007f-\uffff]/g,
          (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
        );
    }
  }

  /** A text as it is, or a value as JSON. */
  event(value: unknown, name?: string): string {
    const { colon, lineEnd, comments, eventNames, lines } = this.#habits;
    const isSeveral = lines === 'several' && typeof value !== 'string';
    const text = typeof value === 'string' ? value : isSeveral ? JSON.stringify(value, null, 1) : this.json(value);
    const all = text.split('\n').map((line) => colon + line);
    if (name !== undefined) all.unshift(`event: ${name}`);
    else if (eventNames === 'yes') all.unshift('id: 7', 'event: message', 'retry: 10');
    if (comments === 'yes' && chance(this.#random, 0.3)) all.unshift(': OPENROUTER PROCESSING', '');
    return all.join(lineEnd) + lineEnd + lineEnd;
  }

  ends(): readonly string[] {
    return this.#habits.done === 'no' ? [] : [this.event('[DONE]')];
  }

  reads(events: readonly string[], count: number): readonly Buffer[] {
    const { mark, reads, done, lineEnd } = this.#habits;
    const texts = [...events];
    if (mark === 'yes') texts.unshift('\ufeff');
    if (done === 'without an empty line') texts.push(texts.pop()!.slice(0, -lineEnd.length));
    if (reads === 'events') return texts.map((text) => Buffer.from(text));
    const all = Buffer.from(texts.join(''));
    if (reads === 'all') return [all];
    const cuts = Array.from({ length: Math.min(200, 2 + count) }, () =>
      between(this.#random, 1, all.length - 1),
    ).toSorted((a, b) => a - b);
    return [0, ...cuts]
      .map((from, at) => all.subarray(from, cuts[at] ?? all.length))
      .filter(({ length }) => length > 0);
  }
}
