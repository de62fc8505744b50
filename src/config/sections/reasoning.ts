import { choice, flag, group, integer, list, optional, value, wordSchema, type ValueOf } from '../setting.ts';

const efforts = ['none', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
type Effort = (typeof efforts)[number];

/** Specification §4.2.1(5): the maximum that a model may get. */
const roomTokensMax = 24_576;

export const reasoning = group('reasoning of the model', {
  efforts: optional(
    list(value<Effort>({ anyOf: efforts.map(wordSchema), description: 'a tier', examples: ['low'] }), {
      minItems: 1,
      maxItems: 6,
      description:
        'efforts that the model supports; without `none` it always reasons; `none` and `medium` when left out, for a model that reasons',
      example: ['none', 'low', 'high'],
    }),
  ),
  default: choice(
    efforts,
    'the effort of requests that do not set one; when left out, the one nearest to medium other than none',
    { example: 'low' },
  ),
  room_tokens: integer(0, roomTokensMax, 'tokens beyond max_tokens that an answer may use for reasoning', {
    default: 0,
    example: 8192,
  }),
  hides: flag('true when it reasons even with effort none, without marking it; such tokens count as answer', {
    default: false,
    example: true,
  }),
  inlines: flag('true when its reasoning is inside the answer, between think tags', { default: false, example: true }),
  preserves: flag('true when it accepts the reasoning of earlier turns', { default: false, example: true }),
});

export type ReasoningInFile = ValueOf<typeof reasoning>;
