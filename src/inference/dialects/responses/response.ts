import type { ErrorBody } from '../../../platform/errors.ts';
import type { Usage } from '../../../generation/event.ts';
import type { Finish, Generation } from '../../../generation/fold.ts';
import { tierName, type ResponseHead } from '../dialect.ts';
import type { Asked } from './asked.ts';
import { encodeItem, itemId, itemToKeep, outputBlocks } from './items.ts';
import type { ItemStatus } from './items.ts';

/** The progress of an answer, and the facts known only at that point. */
export type Progress =
  | { readonly status: 'in_progress' }
  | { readonly status: 'completed' | 'incomplete'; readonly usage: Usage }
  | { readonly status: 'failed'; readonly error: ErrorBody };

/** Encodes a whole answer (contracts §1.3) as JSON text. */
export function encodeResponse(generation: Generation, head: ResponseHead, asked: Asked): string {
  const choice = onlyChoice(generation);
  const blocks = outputBlocks(choice.blocks);
  const status = statusOf(choice.finish);
  const items = blocks.map((output, index) => {
    const isLast = index === blocks.length - 1;
    const encrypted =
      asked.includesEncrypted && output.block.type === 'reasoning' ? head.signer.encrypt(output.block.text) : undefined;
    const id = itemId(output.block, index, head);
    const shown = asked.includesLogprobs ? output : { ...output, logprobs: [] };
    return JSON.stringify(encodeItem(shown, id, isLast ? status : 'completed', encrypted));
  });
  return new ResponseText(head, asked).print({ status, usage: generation.usage }, items);
}

/** Returns the items that later requests may reference. */
export function itemsToKeep(generation: Generation, head: ResponseHead): ReadonlyMap<string, unknown> {
  return new Map(
    outputBlocks(onlyChoice(generation).blocks).map(({ block }, index) => {
      const id = itemId(block, index, head);
      return [id, itemToKeep(block, id)] as const;
    }),
  );
}

/** Returns the only choice: this API requests one. */
function onlyChoice({ choices: [choice] }: Generation) {
  if (choice === undefined) throw new Error('an answer without a choice');
  return choice;
}

/** One status covers every reason that cut the answer: it ends a turn of some clients with an error (contracts §1.3). */
export const statusOf = ({ reason }: Pick<Finish, 'reason'>): Extract<ItemStatus, 'completed' | 'incomplete'> =>
  reason === 'length' ? 'incomplete' : 'completed';

/** Prints the Response object; the part that repeats the request, which may be long, is serialized only once. */
export class ResponseText {
  readonly #head: ResponseHead;
  readonly #start: string;
  readonly #echo: string;

  constructor(head: ResponseHead, { echo }: Asked) {
    this.#head = head;
    const echoed = head.tier === undefined ? echo : { ...echo, service_tier: tierName(head) };
    this.#start = `{"id":"resp_${head.id}","object":"response","created_at":${head.created},`;
    this.#echo = `"model":${JSON.stringify(head.model)},${JSON.stringify(echoed).slice(1, -1)}`;
  }

  /** `items`: each as JSON text. Every key is always present (Open Responses). */
  print(progress: Progress, items: readonly string[]): string {
    const { status } = progress;
    const completedAt = status === 'completed' ? (this.#head.now?.() ?? this.#head.created) : null;
    const error = status === 'failed' ? JSON.stringify(encodeFailure(progress.error)) : 'null';
    const incomplete = status === 'incomplete' ? '{"reason":"max_output_tokens"}' : 'null';
    const usage =
      status === 'completed' || status === 'incomplete' ? JSON.stringify(encodeUsage(progress.usage)) : 'null';
    return (
      `${this.#start}"completed_at":${completedAt},"status":"${status}","error":${error},` +
      `"incomplete_details":${incomplete},"output":[${items.join(',')}],"usage":${usage},${this.#echo}}`
    );
  }
}

/** Encodes an error before the stream has started (specification §7.1). */
export const encodeError = (error: ErrorBody): string => JSON.stringify({ error });

/**
 * There are few published codes, and clients use them to decide whether to retry (contracts §1.0): the service's own code is in the
 * preceding `error` event.
 */
function encodeFailure({ type, message }: ErrorBody): { readonly code: string; readonly message: string } {
  switch (type) {
    case 'rate_limit_error':
      // Codex parses the delay from this text.
      return { code: 'rate_limit_exceeded', message: `${message} Please try again in 1s.` };
    case 'invalid_request_error':
      return { code: 'invalid_prompt', message };
    case 'authentication_error':
    case 'permission_error':
    case 'insufficient_credits':
    case 'routing_error':
    case 'server_error':
    case 'internal_error':
      return { code: 'server_error', message };
  }
}

function encodeUsage(usage: Usage) {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: usage.cachedTokens, cache_write_tokens: 0 },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}
