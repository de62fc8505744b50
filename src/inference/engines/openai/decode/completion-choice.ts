import type { TokenLogprob } from '../../../../generation/event.ts';
import { ApiError } from '../../../../platform/errors.ts';
import { placed, splitEcho } from '../echoed-prompt.ts';
import { StreamFault } from '../sse.ts';
import type { TextGuard } from '../answer-guard.ts';
import type { ChoiceEvents } from './choice-events.ts';
import { isFinish } from './finishes.ts';
import { Halves } from './halves.ts';
import { isObject, text, type JsonObject } from './json.ts';
import { promptTokensOf, wholeToken } from './logprobs.ts';
import type { CompletionReading, DecoderOptions } from './options.ts';

/** One choice of a text completion, consisting only of text. */
export class CompletionChoice {
  readonly #events: ChoiceEvents;
  readonly #guard: TextGuard | undefined;
  readonly #options: DecoderOptions;
  readonly #reading: CompletionReading;
  /** Whether its prompt has been reported, or there is nothing to report. */
  #hasPrompt = false;
  readonly #halves = new Halves();

  constructor(events: ChoiceEvents, guard: TextGuard | undefined, options: DecoderOptions, reading: CompletionReading) {
    this.#events = events;
    this.#guard = guard;
    this.#options = options;
    this.#reading = reading;
  }

  /** A text completion never ends with a call. */
  readonly isOver = false;

  /** Reads everything in a piece except its finish. */
  read(piece: JsonObject): void {
    const { isEchoed, returnsIds, hasLogprobs } = this.#reading;
    if (piece['text'] === undefined && (isObject(piece['message']) || isObject(piece['delta']))) {
      throw new StreamFault('expected a text, found a message');
    }
    let content = this.#halves.join(text(piece['text']));
    let tokens = isEchoed || hasLogprobs ? promptTokensOf(piece['logprobs'], this.#options.logprobs ?? 1) : undefined;
    const ids = returnsIds ? idsOf(piece['token_ids']) : undefined;
    const promptIds = returnsIds ? idsOf(piece['prompt_token_ids']) : undefined;
    const isSilent = content === '' && (tokens?.length ?? 0) === 0 && (ids?.length ?? 0) === 0;
    // A progress chunk, or an empty one while the prompt is read.
    if (isSilent && !isFinish(piece['finish_reason']) && promptIds === undefined) return;
    if (!this.#hasPrompt) {
      this.#hasPrompt = true;
      const rest = this.#prompt(content, tokens, promptIds);
      ({ content, tokens } = rest);
    }
    const { maxTokens } = this.#options;
    // vLLM generates a token when it scores a prompt, and does not show it.
    const count = maxTokens === 0 ? 0 : (ids?.length ?? tokens?.length ?? 0);
    if (content === '' && count === 0) return;
    this.#guard?.text(content);
    const { choice, characters } = this.#events;
    const logprobs =
      hasLogprobs && tokens !== undefined
        ? { logprobs: placed(content, tokens as readonly TokenLogprob[], characters).map(wholeToken) }
        : {};
    const tokenIds = ids === undefined ? {} : { tokenIds: maxTokens === 0 ? [] : ids };
    this.#events.emit(content, { type: 'text', choice, text: content, ...logprobs, ...tokenIds });
    this.#options.tally.delta(choice, count > 0 ? count : undefined);
  }

  /** Ends the text. */
  end(): void {
    const half = this.#halves.end();
    if (half !== '') this.#events.emit(half, { type: 'text', choice: this.#events.choice, text: half });
  }

  /** Reports the prompt with its first piece; returns the part of the piece that belongs to the answer. */
  #prompt(
    content: string,
    tokens: ReturnType<typeof promptTokensOf>,
    promptIds: readonly number[] | undefined,
  ): { content: string; tokens: ReturnType<typeof promptTokensOf> } {
    const { prompts, isEchoed, returnsIds, hasLogprobs } = this.#reading;
    const { choice } = this.#events;
    const prompt = Math.floor(choice / this.#options.choicesPerPrompt);
    // An older server ignores the field and would omit what the client expects.
    if (returnsIds && promptIds === undefined) throw idsNotReturned();
    if (isEchoed) {
      const split = splitEcho({ text: content, tokens: tokens ?? [], promptIds }, prompts[prompt] ?? '');
      const { tokens: promptTokens, ...read } = split.prompt;
      const reported = hasLogprobs && promptTokens !== undefined ? { ...read, tokens: promptTokens } : read;
      this.#events.emit('', { type: 'prompt', choice, ...reported });
      return { content: split.text, tokens: split.tokens };
    }
    const own = this.#reading.ownEcho(prompt);
    const reported = promptIds === undefined ? own : { text: own?.text ?? '', tokenIds: promptIds };
    if (reported !== undefined) this.#events.emit('', { type: 'prompt', choice, ...reported });
    return { content, tokens };
  }
}

function idsOf(raw: unknown): readonly number[] | undefined {
  if (raw === undefined || raw === null) return undefined;
  const isId = (id: unknown): id is number => Number.isSafeInteger(id) && Number(id) >= 0;
  if (!Array.isArray(raw) || !raw.every(isId)) throw new StreamFault('expected token ids as integers');
  return raw;
}

const idsNotReturned = (): ApiError =>
  new ApiError('unsupported_parameter', "The model does not support 'return_token_ids'.", {
    param: 'return_token_ids',
  });
