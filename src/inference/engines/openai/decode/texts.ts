import type { TokenLogprob } from '../../../../generation/event.ts';
import { hermes } from '../../../output-parsers/hermes.ts';
import { OutputParser } from '../../../output-parsers/output-parser.ts';
import type { ParsedEvent } from '../../../output-parsers/parsed-event.ts';
import { StopMatcher } from '../../stop-matcher.ts';
import { TextGuard } from '../answer-guard.ts';
import type { ChoiceEvents } from './choice-events.ts';
import { Halves } from './halves.ts';
import { wholeToken } from './logprobs.ts';
import type { DecoderOptions } from './options.ts';
import { SaidSoFar } from './said.ts';
import { SaidTwice } from './said-twice.ts';

/** The marks that nearly all models have; a server whose model has others is to split them itself. */
const thinking = { type: 'marks', marks: { start: '<think>', end: '</think>' } } as const;

/** The text and the reasoning of one choice. */
export class ChoiceTexts {
  readonly #events: ChoiceEvents;
  readonly #options: DecoderOptions;
  readonly guard: TextGuard | undefined;
  /** Looks for stop sequences. */
  readonly #stops: StopMatcher | undefined;
  #matchedStop: string | undefined;
  /** The answer contains reasoning whose end tag has not come. */
  #isThinking = false;
  /** Looks for think tags, until the answer has begun. */
  #reader: OutputParser | undefined;
  readonly #halves = { text: new Halves(), reasoning: new Halves() };
  readonly #soFar = { text: new SaidSoFar(), reasoning: new SaidSoFar() };
  readonly #saidTwice = new SaidTwice();
  /** Of tokens that made no text of their own (half a character): they belong to the text that they completed. */
  readonly #logprobs: TokenLogprob[] = [];

  constructor(events: ChoiceEvents, options: DecoderOptions) {
    const { splitsThinking, bound, stops, onUnchecked = () => {} } = options;
    this.#events = events;
    this.#options = options;
    this.guard = bound?.type === 'text' ? new TextGuard(bound, onUnchecked) : undefined;
    this.#stops = stops === undefined || stops.length === 0 ? undefined : new StopMatcher(stops);
    this.#reader = splitsThinking
      ? new OutputParser({ shape: { thinking, calls: hermes }, startsInThought: false, calls: undefined })
      : undefined;
  }

  /** The stop sequence that was found here. */
  get matchedStop(): string | undefined {
    return this.#matchedStop;
  }

  /** Reasoning that the server has separated itself. */
  separated(piece: string): void {
    this.#soFar.reasoning.add(piece);
    const reasoning = this.#halves.reasoning.join(piece);
    // Its tags may stand in the text all the same.
    if (this.#reader === undefined) this.#reasoning(reasoning);
    else this.#reasoning(this.#saidTwice.unheard('separate', reasoning));
  }

  /** Text that may contain think tags, stop sequences, and the repeated beginning; returns whether it was reasoning. */
  said(piece: string, logprobs: readonly TokenLogprob[] | undefined): boolean {
    this.#soFar.text.add(piece);
    const content = this.#halves.text.join(piece);
    if (content !== '') return this.#kept(content, logprobs);
    if (logprobs !== undefined) this.silent(logprobs);
    return false;
  }

  /** What a message that closes the answer adds to the deltas before it. */
  unsaid(type: 'text' | 'reasoning', whole: string): string {
    return this.#soFar[type].restOf(whole);
  }

  /** Logprobs of a token that has made no text yet. */
  silent(logprobs: readonly TokenLogprob[]): void {
    this.#logprobs.push(...logprobs);
  }

  /** Text that is the answer. */
  text(content: string, logprobs: readonly TokenLogprob[] | undefined): void {
    this.endThinking();
    this.guard?.text(content);
    const { choice } = this.#events;
    if (logprobs === undefined) return this.#events.emit(content, { type: 'text', choice, text: content });
    const all = [...this.#logprobs.splice(0), ...logprobs].map(wholeToken);
    this.#events.emit(content, { type: 'text', choice, text: content, logprobs: all });
  }

  /** No more text follows: what was held back belongs to the answer. */
  release(): void {
    this.endReading();
    const held = this.#options.echo?.rest() ?? '';
    if (held !== '') this.#content(held, undefined);
    const unstopped = this.#stops?.flush() ?? '';
    if (unstopped !== '') this.#content(unstopped, this.#withLogprobs);
  }

  /** No more text with think tags follows: the held text is all there is. */
  endReading(): void {
    this.#reasoning(this.#halves.reasoning.end());
    const half = this.#halves.text.end();
    if (half !== '') this.#kept(half, this.#withLogprobs);
    const reader = this.#reader;
    if (reader === undefined) return;
    this.#reader = undefined;
    this.#found(reader.end(), this.#options.logprobs !== undefined);
  }

  endThinking(): void {
    if (!this.#isThinking) return;
    this.#isThinking = false;
    this.#events.emit('', { type: 'text', choice: this.#events.choice, text: '\n</think>\n\n' });
  }

  get #withLogprobs(): readonly TokenLogprob[] | undefined {
    return this.#options.logprobs === undefined ? undefined : noLogprobs;
  }

  #kept(content: string, logprobs: readonly TokenLogprob[] | undefined): boolean {
    const { echo } = this.#options;
    const own = echo === undefined ? content : echo.take(content);
    const kept = this.#stops === undefined ? own : this.#beforeStop(this.#stops, own, logprobs);
    return kept !== '' && this.#content(kept, logprobs);
  }

  /** §4.2.5(1) and (4): beside the answer, in it between tags, or not at all. */
  #reasoning(reasoning: string): void {
    if (reasoning === '') return;
    this.guard?.thought();
    const { choice } = this.#events;
    switch (this.#options.reasoningForm) {
      case 'separate':
        return this.#events.emit(reasoning, { type: 'reasoning', choice, text: reasoning });
      case 'inline': {
        const text = this.#isThinking ? reasoning : `<think>\n${reasoning}`;
        this.#isThinking = true;
        return this.#events.emit(reasoning, { type: 'text', choice, text }, 'reasoning');
      }
      case 'hidden':
        this.#events.hide(reasoning);
    }
  }

  /** Text that may contain think tags; returns whether it was reasoning. */
  #content(content: string, logprobs: readonly TokenLogprob[] | undefined): boolean {
    const reader = this.#reader;
    if (reader === undefined) {
      this.text(content, logprobs);
      return false;
    }
    const found = reader.push(content);
    if (logprobs !== undefined) this.#logprobs.push(...logprobs);
    this.#found(found, logprobs !== undefined);
    // Once the answer has begun, no tags are looked for.
    if (reader.phase === 'answer' && found.at(-1)?.type === 'text') this.#reader = undefined;
    return reader.phase === 'reasoning' || found.some(({ type }) => type === 'reasoning');
  }

  #found(found: readonly ParsedEvent[], withLogprobs: boolean): void {
    for (const event of found) {
      if (event.type === 'text') this.text(event.text, withLogprobs ? [] : undefined);
      else if (event.type === 'reasoning') {
        // Logprobs cover the tokens of the answer, not those of the thought before it.
        this.#logprobs.length = 0;
        this.#reasoning(this.#saidTwice.unheard('tagged', event.text));
      }
    }
  }

  /** The text that is certainly before a stop sequence; the tokens of held text wait with it, and go with the sequence. */
  #beforeStop(stops: StopMatcher, piece: string, logprobs: readonly TokenLogprob[] | undefined): string {
    if (this.#matchedStop !== undefined) return '';
    const { text, matched } = stops.push(piece);
    this.#matchedStop = matched;
    if (text !== '') return text;
    if (matched !== undefined) this.#logprobs.length = 0;
    else this.#logprobs.push(...(logprobs ?? []));
    return text;
  }
}

const noLogprobs: readonly TokenLogprob[] = [];
