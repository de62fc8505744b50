import { randomBytes } from 'node:crypto';
import type { FinishReason, GenerationEvent, TokenLogprob, TokenProbability } from '../../../generation/event.ts';
import type { ReasoningForm } from '../../../generation/request.ts';
import type { ParsedEvent } from '../../output-parsers/parsed-event.ts';
import { OutputParser, type OutputParserOptions, type OutputPhase } from '../../output-parsers/output-parser.ts';
import type { Direction, JobEnding, MadeToken } from './job.ts';
import { StopMatcher } from '../stop-matcher.ts';
import { IncrementalText } from './text.ts';

/** The settings that the answers to one request share. */
export interface OutputForm {
  readonly stop: readonly string[];
  readonly detokenize: (ids: readonly number[]) => string;
  /** Texts of the control tokens around reasoning and calls. */
  readonly literals: ReadonlyMap<number, string>;
  /** Ids that precede the text for decoding, where its first blank must not be dropped. */
  readonly context?: readonly number[];
  /** A token's bytes; present when logprobs are wanted. */
  readonly bytesOf: ((id: number) => readonly number[]) | undefined;
  /** How the model writes reasoning and calls; `undefined`: everything is text. */
  readonly reply: OutputParserOptions | undefined;
  readonly thought: ThoughtOptions;
  /** The constraint begins with the answer, after the reasoning. */
  readonly constrainsAnswer: boolean;
  /** The model may end before the answer has begun, although a constraint is waiting for it. */
  readonly mayEndFirst: boolean;
  /** The answer cannot end before this many tokens. */
  readonly tokensMin?: number;
  /** Whether a stop sequence is kept in the answer. */
  readonly includesStop?: boolean;
  /** Whether events carry the ids of their tokens. */
  readonly returnsIds?: boolean;
}

export interface ThoughtOptions {
  readonly form: ReasoningForm;
  /** Reasoning tokens after which its end is forced. */
  readonly budgetTokens: number | undefined;
  /** Reasoning tokens that do not count toward `maxTokens` (§4.2.1(5)). */
  readonly roomTokens: number;
  /** The answer opens with `endIds`. */
  readonly endsAtOnce: boolean;
  /** Ends reasoning and begins the answer. */
  readonly endIds: readonly number[];
  /** Ids that begin the answer after the model has ended its reasoning. */
  readonly answerIds: readonly number[];
  /** The marks around reasoning inside an answer (§4.2.5(1)). */
  readonly marks: { readonly start: string; readonly end: string };
}

/**
 * Turns the tokens of one choice into events. Text that could begin a stop sequence or a mark waits; stop sequences are searched for only
 * in the answer, not in reasoning or in calls. A token counts as reasoning when any of its text is reasoning or belongs to its marks, so
 * the remaining completion tokens are the answer's. Logprobs are reported for the answer's tokens only: each is sent with the beginning of
 * its text.
 */
export class ChoiceOutput {
  readonly #options: OutputForm;
  readonly #choice: number;
  readonly #text: IncrementalText;
  readonly #stop: StopMatcher;
  readonly #reply: OutputParser | undefined;
  readonly #logprobs: LogprobsQueue | undefined;
  #events: MutableEvent[] = [];
  #reasoningTokens = 0;
  /** Number of tokens that may turn out to be a reasoning mark. */
  #undecidedTokens = 0;
  #inThought = false;
  #forcedEnd: boolean;
  /** Text from before it was known whether the answer begins with reasoning. */
  #beginning = '';
  #constrains: boolean;
  #callId = '';
  #tokens = 0;

  constructor(choice: number, options: OutputForm) {
    this.#options = options;
    this.#choice = choice;
    this.#text = new IncrementalText(options.detokenize, options.literals, options.context);
    this.#stop = new StopMatcher(options.stop);
    this.#reply = options.reply && new OutputParser(options.reply);
    this.#logprobs = options.bytesOf && new LogprobsQueue(options.bytesOf);
    this.#constrains = options.constrainsAnswer;
    this.#forcedEnd = options.thought.endsAtOnce;
  }

  get reasoningTokens(): number {
    return this.#options.thought.form === 'separate' ? this.#reasoningTokens : 0;
  }

  /** §4.2.1(5) */
  get tokensBeyond(): number | undefined {
    const { roomTokens } = this.#options.thought;
    return roomTokens === 0 ? undefined : Math.min(roomTokens, this.#reasoningTokens);
  }

  token(token: MadeToken): Direction | undefined {
    const direction = this.#push(token);
    if (this.#options.returnsIds === true)
      this.#event({ type: 'text', choice: this.#choice, text: '', tokenIds: [token.id] });
    return direction;
  }

  #push(token: MadeToken): Direction | undefined {
    this.#tokens++;
    const text = this.#text.push(token.id);
    if (this.#reply === undefined) {
      this.#logprobs?.push(token, text);
      return this.#say(text);
    }
    return this.#read(this.#reply, token, text);
  }

  /** A constrained answer cannot end before it has begun. */
  insteadOfEnd(): readonly number[] | undefined {
    if (!this.#constrains || this.#options.mayEndFirst || this.#reply?.phase === 'answer') return undefined;
    this.#forcedEnd = true;
    return this.#options.thought.endIds;
  }

  end(ending: Extract<JobEnding, { readonly type: 'stop' | 'length' }>): FinishReason {
    if (ending.type === 'length' || ending.stopSequence === undefined) {
      const text = this.#text.flush();
      const events = this.#reply === undefined ? [] : [...this.#reply.push(text), ...this.#reply.end()];
      const stopped = this.#reply === undefined ? this.#say(text) : this.#pass(events);
      if (stopped?.stop === undefined) this.#emit(this.#stop.flush());
      const rest = this.#reply?.isBeyondText === true ? [] : (this.#logprobs?.rest() ?? []);
      if (rest.length > 0) this.#event({ type: 'text', choice: this.#choice, text: '', logprobs: rest });
    }
    if (ending.type === 'length') return 'length';
    return (this.#reply?.calls ?? 0) > 0 ? 'tool-calls' : 'stop';
  }

  /** Returns the events since the last call. */
  drain(): readonly GenerationEvent[] {
    const events = this.#events;
    if (events.length > 0) this.#events = [];
    return events;
  }

  #read(reply: OutputParser, token: MadeToken, text: string): Direction | undefined {
    const before = reply.phase;
    const events = reply.push(text);
    const { phase } = reply;
    if (before === 'beginning') this.#beginning += text;
    this.#count(before, phase);
    this.#logprobs?.read({ token, text }, before, phase, saidIn(events));
    const stopped = this.#pass(events);
    if (stopped !== undefined) return stopped;
    if (reply.isOver) return { stop: {} };
    if (phase === 'answer' && this.#constrains) {
      this.#constrains = false;
      return {
        force: this.#forcedEnd || this.#options.mayEndFirst ? [] : this.#options.thought.answerIds,
        // The text that began the answer may already be a mark instead of text.
        constrainFrom: before === 'beginning' ? this.#beginning : saidIn(events),
      };
    }
    const { budgetTokens, endIds } = this.#options.thought;
    if (
      phase === 'reasoning' &&
      budgetTokens !== undefined &&
      !this.#forcedEnd &&
      this.#reasoningTokens >= budgetTokens
    ) {
      this.#forcedEnd = true;
      return { force: endIds };
    }
    return undefined;
  }

  #count(before: OutputPhase, after: OutputPhase): void {
    if (after === 'beginning') {
      this.#undecidedTokens++;
      return;
    }
    if (before === 'reasoning' || after === 'reasoning') this.#reasoningTokens += 1 + this.#undecidedTokens;
    this.#undecidedTokens = 0;
    if (before === 'answer' && after === 'reasoning') this.#forcedEnd = false;
  }

  #pass(events: readonly ParsedEvent[]): Direction | undefined {
    for (const event of events) {
      if (event.type === 'reasoning') {
        this.#think(event.text);
        continue;
      }
      if (this.#inThought) this.#leaveThought();
      switch (event.type) {
        case 'text': {
          const stopped = this.#say(event.text);
          if (stopped !== undefined) return stopped;
          break;
        }
        case 'tool-call':
          this.#emit(this.#stop.flush());
          this.#logprobs?.close();
          this.#callId = `call_${randomBytes(12).toString('hex')}`;
          this.#event({
            type: 'tool-call',
            choice: this.#choice,
            call: event.call,
            id: this.#callId,
            name: event.name,
          });
          break;
        case 'tool-arguments':
          this.#event({ type: 'tool-arguments', choice: this.#choice, call: event.call, text: event.text });
      }
    }
    return undefined;
  }

  #think(text: string): void {
    const { form, marks } = this.#options.thought;
    switch (form) {
      case 'hidden':
        return;
      case 'separate':
        this.#event({ type: 'reasoning', choice: this.#choice, text });
        return;
      case 'inline':
        // The mark may be in the prompt, and control tokens have no text, so the marks are written here.
        this.#event({ type: 'text', choice: this.#choice, text: this.#inThought ? text : `${marks.start}\n${text}` });
        this.#inThought = true;
    }
  }

  #leaveThought(): void {
    this.#inThought = false;
    this.#event({ type: 'text', choice: this.#choice, text: `\n${this.#options.thought.marks.end}\n\n` });
  }

  #say(text: string): Direction | undefined {
    // Like vLLM: tokens before the minimum are not part of a stop sequence.
    if (this.#tokens <= (this.#options.tokensMin ?? 0)) {
      this.#emit(text);
      return undefined;
    }
    const { text: ready, matched } = this.#stop.push(text);
    this.#emit(matched !== undefined && this.#options.includesStop === true ? ready + matched : ready);
    return matched === undefined ? undefined : { stop: { sequence: matched } };
  }

  #emit(text: string): void {
    if (text === '') return;
    const logprobs = this.#logprobs?.take(text.length);
    this.#event({ type: 'text', choice: this.#choice, text, ...(logprobs === undefined ? {} : { logprobs }) });
  }

  /** Adds an event; adjacent events of one kind are merged. */
  #event(event: MutableEvent): void {
    const last = this.#events.at(-1);
    if (last?.type === 'text' && event.type === 'text') {
      last.text += event.text;
      if (event.logprobs !== undefined) last.logprobs = [...(last.logprobs ?? []), ...event.logprobs];
      if (event.tokenIds !== undefined) last.tokenIds = [...(last.tokenIds ?? []), ...event.tokenIds];
    } else if (last?.type === 'reasoning' && event.type === 'reasoning') last.text += event.text;
    else if (last?.type === 'tool-arguments' && event.type === 'tool-arguments' && last.call === event.call)
      last.text += event.text;
    else this.#events.push({ ...event });
  }
}

type MutableEvent =
  | {
      type: 'text';
      choice: number;
      text: string;
      logprobs?: readonly TokenLogprob[];
      tokenIds?: readonly number[];
    }
  | { type: 'reasoning'; choice: number; text: string }
  | { type: 'tool-call'; choice: number; call: number; id: string; name: string }
  | { type: 'tool-arguments'; choice: number; call: number; text: string };

const saidIn = (events: readonly ParsedEvent[]): string =>
  events.reduce((text, event) => (event.type === 'text' ? text + event.text : text), '');

interface ReadToken {
  readonly token: MadeToken;
  readonly text: string;
}

/** Logprobs waiting for the text that they belong to. */
class LogprobsQueue {
  readonly #bytesOf: (id: number) => readonly number[];
  readonly #waiting: { readonly logprob: TokenLogprob | undefined; readonly start: number }[] = [];
  /** Characters of the answer that its tokens have produced, and those already sent. */
  #made = 0;
  #left = 0;
  #closed = false;
  #isBehindThought = false;
  /** Tokens that may turn out to be a reasoning mark. */
  readonly #undecided: ReadToken[] = [];

  constructor(bytesOf: (id: number) => readonly number[]) {
    this.#bytesOf = bytesOf;
  }

  push(token: MadeToken | undefined, text: string): void {
    if (this.#closed) return;
    // Blanks between reasoning and the answer are layout and are never sent.
    const shown = this.#isBehindThought && this.#made === 0 ? text.trimStart() : text;
    if (shown === '' && text !== '') return;
    this.#waiting.push({ logprob: token && this.#logprobOf(token), start: this.#made });
    this.#made += shown.length;
  }

  /** Takes a token of an answer that may contain reasoning: `said` is the answer text that it revealed. */
  read(read: ReadToken, before: OutputPhase, after: OutputPhase, said: string): void {
    if (before === 'answer') return this.push(read.token, read.text);
    if (before === 'beginning') this.#undecided.push(read);
    if (after === 'beginning') return;
    const undecided = this.#undecided.splice(0);
    this.#isBehindThought ||= after === 'reasoning' || before === 'reasoning';
    if (after === 'reasoning') return;
    // In a token that ends reasoning, only the rest is text, which has no probability of its own.
    if (before === 'reasoning') return said === '' ? undefined : this.push(undefined, said);
    // It was not a reasoning mark: the held text is the answer, except for a header in front of it.
    let length = undecided.reduce((sum, { text }) => sum + text.length, 0) - said.length;
    for (const { token, text } of undecided) {
      length -= text.length;
      if (length < 0) this.push(token, text);
    }
  }

  /** Returns the logprobs of tokens whose text begins in the next `characters`. */
  take(characters: number): readonly TokenLogprob[] {
    this.#left += characters;
    return this.#takeUpTo(this.#left);
  }

  /** Returns the logprobs of tokens without text at the end of an answer. */
  rest(): readonly TokenLogprob[] {
    return this.#takeUpTo(Infinity);
  }

  /** Marks that no more text follows. */
  close(): void {
    this.#closed = true;
    this.#waiting.length = 0;
  }

  #takeUpTo(end: number): readonly TokenLogprob[] {
    const beyond = this.#waiting.findIndex(({ start }) => start >= end);
    const taken = this.#waiting.splice(0, beyond < 0 ? this.#waiting.length : beyond);
    return taken.flatMap(({ logprob, start }) => (logprob === undefined ? [] : [{ ...logprob, start }]));
  }

  #logprobOf({ id, logprobs }: MadeToken): TokenLogprob | undefined {
    // Forced tokens have no probability.
    if (logprobs === undefined) return undefined;
    return {
      ...this.#probabilityOf(id, logprobs.logprob),
      top: logprobs.top.map((other) => this.#probabilityOf(other.id, other.logprob)),
    };
  }

  #probabilityOf(id: number, logprob: number): TokenProbability {
    const bytes = this.#bytesOf(id);
    return { token: Buffer.from(bytes).toString(), tokenId: id, bytes, logprob };
  }
}
