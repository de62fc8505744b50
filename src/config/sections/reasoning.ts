import { choice, flag, group, integer, list, optional, value, wordSchema, type ValueOf } from '../setting.ts';

const efforts = ['none', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
type Effort = (typeof efforts)[number];

/** Specification §4.2.1(5): the most that a model may be given. */
const roomTokensMax = 24_576;

export const reasoning = group('how the model reasons', {
  efforts: optional(
    list(value<Effort>({ anyOf: efforts.map(wordSchema), description: 'a tier', examples: ['low'] }), {
      minItems: 1,
      maxItems: 6,
      description:
        'tiers that the model knows; without `none` it always reasons; `none` and `medium` when left out, for a model that reasons',
      example: ['none', 'low', 'high'],
    }),
  ),
  default: choice(
    efforts,
    'the tier of requests that name none; the one nearest to medium, other than none, when left out',
    { example: 'low' },
  ),
  room_tokens: integer(0, roomTokensMax, 'tokens that an answer may have beyond max_tokens while it reasons', {
    default: 0,
    example: 8192,
  }),
  hides: flag('true when it also reasons with effort none, without telling; such tokens count as answer', {
    default: false,
    example: true,
  }),
  inlines: flag('true when its reasoning stays in the answer, between think tags', { default: false, example: true }),
  preserves: flag('true when it can take the reasoning of earlier turns back', { default: false, example: true }),
});

export type ReasoningInFile = ValueOf<typeof reasoning>;
