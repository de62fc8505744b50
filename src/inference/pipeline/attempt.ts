import type { UsageAttempt } from '../../store/schema/tables.ts';
import type { Compared } from '../routing/earlier-prompts.ts';
import type { Placement, RoutedRequest } from '../routing/fleet.ts';
import { prefixesOf, type PromptPrefixes } from '../routing/prompt-prefixes.ts';
import type { Backend, BackendPool } from './backend-pool.ts';
import type { Order } from './order.ts';
import { elapsedMs } from './request-facts.ts';

/** A try at a backend, as the ledger and the log record it. */
export type Attempt = Omit<UsageAttempt, 'failed' | 'hedge'> & {
  failed: string | null;
  hedge?: UsageAttempt['hedge'];
};

export interface Routed extends RoutedRequest {
  /** Set with the first call of `prefixes`, if there are earlier prompts of the account. */
  compared: Compared | undefined;
}

/** The prefixes are salted: prompts of two models never match, and outsiders cannot know what two prompts have in common here. */
export function routedRequest({ request, promptTokensLikely }: Order, { prefixSalt, fleet }: BackendPool): Routed {
  let prefixes: PromptPrefixes | undefined;
  const routed: Routed = {
    promptTokens: promptTokensLikely,
    compared: undefined,
    prefixes: () => {
      if (prefixes !== undefined) return prefixes;
      prefixes = prefixesOf(request, promptTokensLikely, prefixSalt);
      routed.compared = fleet.earlier.compare(prefixes);
      return prefixes;
    },
  };
  return routed;
}

export function attemptOf(
  order: Order,
  { compared }: Routed,
  { backend, reasons, elsewhere }: Placement<Backend>,
): Attempt {
  return {
    backend: backend.label,
    atMs: elapsedMs(order),
    failed: null,
    chosen: reasons,
    ...(elsewhere === undefined
      ? {}
      : {
          cachedElsewhere: {
            backend: elsewhere.backend.label,
            cachedTokens: elsewhere.reasons.cachedTokens,
            expectedMs: elsewhere.reasons.expectedMs,
            state: elsewhere.state,
          },
        }),
    ...(reasons === null || compared === undefined ? {} : { earlier: earlierOf(order, compared) }),
  };
}

function earlierOf(
  { request: { prompt } }: Order,
  { sharedTokens, differsAt }: Compared,
): NonNullable<UsageAttempt['earlier']> {
  const tokens = Math.round(sharedTokens);
  if (differsAt === undefined) return { tokens };
  if (differsAt < 0) return { tokens, differs: { in: 'tools' } };
  const message = prompt.type === 'messages' ? prompt.messages[differsAt] : undefined;
  return message === undefined ? { tokens } : { tokens, differs: { in: message.role, message: differsAt } };
}
