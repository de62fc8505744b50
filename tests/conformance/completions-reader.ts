import assert from 'node:assert/strict';

/** What a client reads of an answer of `/v1/completions`, streamed or whole; the framing is checked on the way. */
export interface ReadCompletion {
  readonly id: string;
  readonly choices: readonly ReadCompletionChoice[];
  readonly usage: CompletionUsage | undefined;
  readonly error?: Readonly<Record<string, unknown>>;
}

export interface ReadCompletionChoice {
  readonly index: number;
  text: string;
  readonly logprobs: CompletionLogprobs;
  finishReason: string | null;
  stop: unknown;
  readonly tokenIds: number[];
  promptTokenIds: readonly number[] | undefined;
}

export interface CompletionLogprobs {
  readonly tokens: string[];
  readonly token_logprobs: (number | null)[];
  readonly top_logprobs: (Readonly<Record<string, number>> | null)[];
  readonly text_offset: number[];
}

export interface CompletionUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  readonly completion_tokens_details: { readonly reasoning_tokens: number };
}

interface WireChoice {
  readonly index: number;
  readonly text: string;
  readonly logprobs: CompletionLogprobs | null;
  readonly finish_reason: string | null;
  readonly matched_stop?: unknown;
  readonly stop_reason?: unknown;
  readonly token_ids?: readonly number[];
  readonly prompt_token_ids?: readonly number[];
}

interface Wire {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly WireChoice[];
  readonly usage?: CompletionUsage;
  readonly error?: Readonly<Record<string, unknown>>;
}

export function readCompletion(body: string): ReadCompletion {
  const wire = JSON.parse(body) as Wire;
  const reading = new Reading();
  reading.take(wire);
  assert.deepEqual(
    wire.choices.map(({ index }) => index),
    wire.choices.map((_, at) => at),
  );
  return reading.read(wire.id, wire.usage);
}

/** Any number of chunks with a choice, then one with the usage and none, then `[DONE]`; or an error in place of the last two. */
export function readCompletionStream(sse: string): ReadCompletion {
  assert.ok(sse.endsWith('\n\n'));
  const events = sse.slice(0, -2).split('\n\n');
  assert.equal(events.pop(), 'data: [DONE]');
  const chunks = events.map((event) => {
    assert.match(event, /^data: \{[^\n]*\}$/);
    return JSON.parse(event.slice('data: '.length)) as Wire;
  });
  const last = chunks.pop();
  assert.ok(last);
  const reading = new Reading();
  for (const chunk of chunks) {
    assert.equal(chunk.choices.length, 1);
    assert.equal(chunk.usage, undefined);
    reading.take(chunk);
  }
  if (last.error !== undefined) return { ...reading.read(last.id, undefined), error: last.error };
  assert.deepEqual(last.choices, []);
  return reading.read(last.id, last.usage);
}

class Reading {
  readonly #choices = new Map<number, ReadCompletionChoice>();

  take(wire: Wire): void {
    assert.equal(wire.object, 'text_completion');
    for (const choice of wire.choices) this.#takeChoice(choice);
  }

  read(id: string, usage: CompletionUsage | undefined): ReadCompletion {
    const choices = [...this.#choices.values()].toSorted((a, b) => a.index - b.index);
    return { id, choices, usage };
  }

  #takeChoice(wire: WireChoice): void {
    const known = this.#choices.get(wire.index);
    const choice = known ?? newChoice(wire.index);
    this.#choices.set(wire.index, choice);
    assert.equal(choice.finishReason, null, 'nothing follows the finish of a choice');
    choice.text += wire.text;
    choice.finishReason = wire.finish_reason;
    assert.deepEqual(wire.matched_stop, wire.stop_reason);
    assert.equal(wire.stop_reason === undefined, wire.finish_reason === null);
    choice.stop = wire.stop_reason;
    choice.tokenIds.push(...(wire.token_ids ?? []));
    // Only the first chunk of a choice has them.
    if (known !== undefined) assert.equal(wire.prompt_token_ids, undefined);
    else choice.promptTokenIds = wire.prompt_token_ids;
    if (wire.logprobs === null) return;
    const { tokens, token_logprobs, top_logprobs, text_offset } = wire.logprobs;
    for (const list of [token_logprobs, top_logprobs, text_offset]) assert.equal(list.length, tokens.length);
    choice.logprobs.tokens.push(...tokens);
    choice.logprobs.token_logprobs.push(...token_logprobs);
    choice.logprobs.top_logprobs.push(...top_logprobs);
    choice.logprobs.text_offset.push(...text_offset);
  }
}

const newChoice = (index: number): ReadCompletionChoice => ({
  index,
  text: '',
  logprobs: { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] },
  finishReason: null,
  stop: undefined,
  tokenIds: [],
  promptTokenIds: undefined,
});
