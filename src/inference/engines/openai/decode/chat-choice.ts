import type { TokenLogprob } from '../../../../generation/event.ts';
import { StreamFault } from '../sse.ts';
import type { ChoiceCalls } from './calls.ts';
import type { ChoiceEvents } from './choice-events.ts';
import { isObject, text, type JsonObject } from './json.ts';
import { logprobsOf } from './logprobs.ts';
import type { DecoderOptions } from './options.ts';
import { joined, partsOf, reasoningOf } from './said.ts';
import type { ChoiceTexts } from './texts.ts';

/** What a piece contained last. */
type Said = 'nothing' | 'text' | 'reasoning' | 'call';

/** One choice of a chat completion: text, reasoning and calls. */
export class ChatChoice {
  readonly #events: ChoiceEvents;
  readonly #texts: ChoiceTexts;
  readonly #calls: ChoiceCalls;
  readonly #options: Pick<DecoderOptions, 'logprobs' | 'tally'>;
  /** Whether a delta contained anything: a message after it repeats that. */
  #hasDeltas = false;
  #isOver = false;

  constructor(
    events: ChoiceEvents,
    texts: ChoiceTexts,
    calls: ChoiceCalls,
    options: Pick<DecoderOptions, 'logprobs' | 'tally'>,
  ) {
    this.#events = events;
    this.#texts = texts;
    this.#calls = calls;
    this.#options = options;
  }

  /** Whether the answer ends here, with its first call. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Reads everything in a piece except its finish. */
  read(piece: JsonObject): void {
    const { delta, message } = piece;
    const { logprobs: topMax, tally } = this.#options;
    const logprobs = topMax === undefined ? undefined : logprobsOf(piece['logprobs'], topMax);
    let said: Said = 'nothing';
    if (isObject(delta)) {
      said = this.#delta(delta, logprobs, false);
      if (said !== 'nothing') this.#hasDeltas = true;
    } else if (delta !== undefined && delta !== null) throw new StreamFault('expected an object at delta');
    if (isObject(message)) {
      const added = this.#hasDeltas ? this.#unsaid(message) : this.#delta(message, logprobs, true);
      if (added !== 'nothing') said = added;
    } else if (message !== undefined && message !== null) throw new StreamFault('expected an object at message');
    else if (!isObject(delta) && text(piece['text']) !== '') {
      said = this.#texts.said(text(piece['text']), logprobs) ? 'reasoning' : 'text';
      this.#hasDeltas = true;
    }
    // Generated, but held back by a call parser (`return_token_ids`): a client that leaves now pays for it.
    const kept: unknown = said === 'nothing' ? piece['token_ids'] : undefined;
    if (Array.isArray(kept) && kept.length > 0) {
      tally.delta(this.#events.choice, kept.length);
      this.#events.start();
    } else if (said !== 'nothing') {
      const tokens = logprobs?.length ?? 0;
      tally.delta(this.#events.choice, tokens > 0 ? tokens : undefined);
    } else if (logprobs !== undefined && !isEmptyStart(delta ?? message)) this.#texts.silent(logprobs);
  }

  /** Reads a delta; `isMessage`: it is a message, whose calls are whole. */
  #delta(delta: JsonObject, logprobs: readonly TokenLogprob[] | undefined, isMessage: boolean): Said {
    const texts = this.#texts;
    let said: Said = 'nothing';
    const reasoning = reasoningOf(delta);
    if (reasoning !== '') {
      said = 'reasoning';
      texts.separated(reasoning);
    }
    const refusal = text(delta['refusal']);
    if (refusal !== '') texts.guard?.release();
    const content = delta['content'] ?? '';
    const plain = typeof content === 'string' ? content || refusal : '';
    if (plain !== '') said = texts.said(plain, logprobs) ? 'reasoning' : 'text';
    else if (content !== '') said = this.#parts(content, logprobs) ?? said;
    const fragments = callsOf(delta);
    if (fragments.length === 0) return said;
    texts.endReading();
    texts.endThinking();
    for (let i = 0; i < fragments.length && !this.#isOver; i++) {
      this.#isOver = !this.#calls.read(fragments[i], i, fragments.length, isMessage);
    }
    return 'call';
  }

  #parts(content: unknown, logprobs: readonly TokenLogprob[] | undefined): Said | undefined {
    let said: Said | undefined;
    for (const part of partsOf(content)) {
      if (part.text === '') continue;
      if (part.type === 'reasoning') {
        this.#texts.separated(part.text);
        said = 'reasoning';
      } else said = this.#texts.said(part.text, logprobs) ? 'reasoning' : 'text';
    }
    return said;
  }

  /** Reads what a message adds to the deltas before it. */
  #unsaid(message: JsonObject): Said {
    const texts = this.#texts;
    const content = message['content'] ?? '';
    const parts = typeof content === 'string' ? [] : partsOf(content);
    const reasoning = texts.unsaid('reasoning', reasoningOf(message) || joined(parts, 'reasoning'));
    const answer = texts.unsaid('text', typeof content === 'string' ? content : joined(parts, 'text'));
    if (reasoning !== '') texts.separated(reasoning);
    if (answer !== '') texts.said(answer, undefined);
    const calls = callsOf(message);
    if (calls.length === 0) return answer !== '' ? 'text' : reasoning !== '' ? 'reasoning' : 'nothing';
    texts.endReading();
    texts.endThinking();
    this.#isOver = !this.#calls.close(calls);
    return 'call';
  }
}

/** Returns the list of calls; the API's older single call as a list. */
function callsOf(delta: JsonObject): readonly unknown[] {
  const { tool_calls: calls, function_call: only } = delta;
  if (Array.isArray(calls) && calls.length > 0) return calls;
  return isObject(only) ? [{ index: 0, function: only }] : noCalls;
}

const noCalls: readonly unknown[] = [];

/** Returns whether it is the chunk that only names the role: it carries the logprobs of a token whose text is elsewhere or hidden. */
function isEmptyStart(delta: unknown): boolean {
  return isObject(delta) && delta['role'] !== undefined;
}
