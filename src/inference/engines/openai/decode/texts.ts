import type { TokenLogprob } from '../../../../generation/event.ts';
import { hermes } from '../../../output-parsers/named-formats.ts';
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

/** The marks that nearly all models use; a server whose model uses others has to split them itself. */
const thinking = { type: 'marks', marks: { start: '<think>', end: '</think>' } } as const;

/** The text and the reasoning of one choice. */
export class ChoiceTexts {
  readonly #events: ChoiceEvents;
  readonly #options: DecoderOptions;
  readonly guard: TextGuard | undefined;
  /** Searches for stop sequences. */
  readonly #stops: StopMatcher | undefined;
  #matchedStop: string | undefined;
  /** Whether the answer contains reasoning whose end tag has not come yet. */
  #isThinking = false;
  /** Searches for think tags, until the answer has begun. */
  #reader: OutputParser | undefined;
  readonly #halves = { text: new Halves(), reasoning: new Halves() };
  readonly #soFar = { text: new SaidSoFar(), reasoning: new SaidSoFar() };
  readonly #saidTwice = new SaidTwice();
  /** Logprobs of tokens without text (half a character): they belong to the text that they completed. */
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

  /** Takes reasoning that the server has separated. */
  separated(piece: string): void {
    this.#soFar.reasoning.add(piece);
    const reasoning = this.#halves.reasoning.join(piece);
    // Its tags may be in the text all the same.
    if (this.#reader === undefined) this.#reasoning(reasoning);
    else this.#reasoning(this.#saidTwice.unheard('separate', reasoning));
  }

  /** Takes text that may contain think tags, stop sequences, and the repeated beginning; returns whether it was reasoning. */
  said(piece: string, logprobs: readonly TokenLogprob[] | undefined): boolean {
    this.#soFar.text.add(piece);
    const content = this.#halves.text.join(piece);
    if (content !== '') return this.#kept(content, logprobs);
    if (logprobs !== undefined) this.silent(logprobs);
    return false;
  }

  /** Returns what a message that closes the answer adds to the deltas before it. */
  unsaid(type: 'text' | 'reasoning', whole: string): string {
    return this.#soFar[type].restOf(whole);
  }

  /** Takes logprobs of a token that has not produced text yet. */
  silent(logprobs: readonly TokenLogprob[]): void {
    this.#logprobs.push(...logprobs);
  }

  /** Takes text of the answer. */
  text(content: string, logprobs: readonly TokenLogprob[] | undefined): void {
    this.endThinking();
    this.guard?.text(content);
    const { choice } = this.#events;
    if (logprobs === undefined) return this.#events.emit(content, { type: 'text', choice, text: content });
    const all = [...this.#logprobs.splice(0), ...logprobs].map(wholeToken);
    this.#events.emit(content, { type: 'text', choice, text: content, logprobs: all });
  }

  /** Ends the text: held text belongs to the answer. */
  release(): void {
    this.endReading();
    const held = this.#options.echo?.rest() ?? '';
    if (held !== '') this.#content(held, undefined);
    const unstopped = this.#stops?.flush() ?? '';
    if (unstopped !== '') this.#content(unstopped, this.#withLogprobs);
  }

  /** Ends the search for think tags: no more text with them follows, so held text is complete. */
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

  /** Reports reasoning by §4.2.5(1) and (4): separately, between tags in the answer, or not at all. */
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

  /** Takes text that may contain think tags; returns whether it was reasoning. */
  #content(content: string, logprobs: readonly TokenLogprob[] | undefined): boolean {
    const reader = this.#reader;
    if (reader === undefined) {
      this.text(content, logprobs);
      return false;
    }
    const found = reader.push(content);
    if (logprobs !== undefined) this.#logprobs.push(...logprobs);
    this.#found(found, logprobs !== undefined);
    // Once the answer has begun, tags are no longer searched for.
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

  /** Returns the text that is certainly before a stop sequence; the tokens of held text wait with it, and are dropped with the sequence. */
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
