import Type from 'typebox';
import type { Static } from 'typebox';

import type { UsageRow } from '../store/ledger.ts';
import type { UsageAttempt } from '../store/schema/tables.ts';
import { nullable } from './wire.ts';

/** Why a prompt was in no cache, without anything of its content. */
export const cacheMissSchema = Type.Object(
  {
    reason: Type.Enum(['changed', 'elsewhere', 'evicted'], {
      description:
        '`changed`: from `differs` on, no earlier prompt was alike; `elsewhere`: another backend had more of it, as `cached_elsewhere` says; `evicted`: what an earlier prompt had left in the cache was gone, or the server reports no cached tokens.',
    }),
    differs: nullable(
      Type.Object(
        {
          in: Type.Enum(['tools', 'system', 'user', 'assistant', 'tool'], {
            description: 'Role of the message; `tools`: the list of tools, which is read before all messages.',
          }),
          message: nullable(
            Type.Integer({
              description:
                'Its place in the prompt, from 0; a system text that was sent beside the messages is the first. Null for tools.',
            }),
          ),
        },
        {
          description:
            'The first message that differs from the nearest earlier prompt of the account; null where this one goes on where that one ended, or none is known.',
        },
      ),
    ),
  },
  {
    description:
      'Why tokens of the prompt were in no cache, of models with several backends; null: few were, no earlier prompt is known, or the request was under zero data retention.',
  },
);

/** Expectations are estimates of prefixes that end this far apart; smaller differences mean nothing. */
const cacheBlockTokens = 128;
/** The last block and the message that was asked are always read. */
const missedTokensMin = 256;

type Facts = Pick<UsageRow, 'attempts' | 'cachedTokens' | 'promptTokens'>;

/** The try that answered, if it was chosen among several backends. */
function answeredIn({ attempts }: Facts) {
  const answered = attempts?.findLast(({ failed, hedge }) => failed === null && hedge !== 'second_stopped');
  return answered === undefined || answered.chosen === null ? undefined : { ...answered, chosen: answered.chosen };
}

export function cacheMissOf(row: Facts): Static<typeof cacheMissSchema> | null {
  const answered = answeredIn(row);
  const { promptTokens, cachedTokens: there } = row;
  if (answered === undefined || promptTokens - there < missedTokensMin) return null;
  const { chosen, cachedElsewhere: other, earlier } = answered;
  const differs = earlier?.differs === undefined ? null : { message: null, ...earlier.differs };
  const expected = chosen.cachedTokens;
  if (expected - there >= cacheBlockTokens) return { reason: 'evicted', differs };
  if (other !== undefined && other.cachedTokens - expected >= cacheBlockTokens) return { reason: 'elsewhere', differs };
  // Prefixes end up to a quarter of their length apart (prompt-prefixes.ts).
  if (earlier !== undefined && 0.75 * earlier.tokens - Math.max(expected, there) >= cacheBlockTokens)
    return { reason: 'evicted', differs };
  return differs === null ? null : { reason: 'changed', differs };
}

/** What was expected in the cache of the backend that answered, what was there, who had more of it, and what differs. */
export function cacheSentences(row: Facts): readonly string[] {
  const answered = answeredIn(row);
  if (answered === undefined || row.promptTokens === 0) return [];
  const { cachedTokens: there } = row;
  const { backend, chosen, cachedElsewhere: other, earlier } = answered;
  const miss = cacheMissOf(row);
  const isLess = chosen.cachedTokens - there >= cacheBlockTokens;
  return [
    ...(isLess
      ? [
          `Of the prompt, ${chosen.cachedTokens} tokens were expected in the cache of ${backend}, and it reported ${there}: the others had left it since, or the server reports no cached tokens.`,
        ]
      : []),
    ...(other === undefined || other.cachedTokens - chosen.cachedTokens < cacheBlockTokens
      ? []
      : [
          `${other.backend} was expected to have ${other.cachedTokens} tokens of it, but ${whyNot[other.state](other.expectedMs, chosen.expectedMs)}.`,
        ]),
    ...(miss?.reason === 'evicted' && !isLess && earlier !== undefined
      ? [`An earlier prompt begins with the same ${earlier.tokens} tokens, but had left all caches.`]
      : []),
    ...(miss === null || miss.differs === null ? [] : [differsSentence(miss.differs)]),
  ];
}

const differsSentence = ({ in: role, message }: { readonly in: string; readonly message: number | null }): string =>
  message === null
    ? 'Its tools differ from those of the nearest earlier prompt, and nothing behind them can be in a cache.'
    : `The first message that differs from the nearest earlier prompt is message ${message} (${role}), and nothing behind the difference can be in a cache.`;

const whyNot: Readonly<
  Record<NonNullable<UsageAttempt['cachedElsewhere']>['state'], (there: number, here: number) => string>
> = {
  slower: (there, here) => `its first token was expected after ${there} ms, and here after ${here} ms`,
  full: () => 'it had as many requests as it takes',
  unavailable: () => 'it was left out, or had been tried before',
};
