import Type from 'typebox';

import { decimalText } from '../../config/decimal.ts';
import { ApiError } from '../../platform/errors.ts';
import { notThere } from '../input.ts';
import { route } from '../route.ts';
import type { AccountRoute, Call } from '../route.ts';
import type { ModelAddition } from '../services.ts';
import { nullable, secondsOf } from '../wire.ts';

const path = '/v1/admin/model_additions';
/** At most $10,000,000, as on the command line. */
const rate = Type.Integer({ minimum: 0, maximum: 1_000_000_000_000_000 });

const additionSchema = Type.Object({
  object: Type.Literal('model_addition'),
  source: Type.String(),
  state: Type.Enum(['running', 'added', 'failed', 'stopped'], {
    description: '`added`: it is written into the configuration. What a stopped one has fetched stays for another try.',
  }),
  started_at: Type.Integer({ description: 'Unix seconds.' }),
  progress: nullable(Type.String({ description: 'What it does, as the command says it; null before and afterwards.' })),
  model: nullable(
    Type.Object({
      id: Type.String(),
      context_length: nullable(Type.Integer()),
      answer: nullable(Type.String({ description: 'To a greeting; null if it writes no text.' })),
      tokens_per_second: nullable(Type.Number()),
      is_in_force: Type.Boolean({ description: 'Whether the service has taken it over.' }),
    }),
  ),
  problem: nullable(Type.String()),
});

const lastSchema = Type.Object({
  object: Type.Literal('model_additions'),
  last: nullable(additionSchema),
});

/** Models that this computer runs, added by `tokenhouse models add`. */
export const modelAdditionRoutes: readonly AccountRoute[] = [
  route({
    method: 'get',
    path,
    operationId: 'getModelAddition',
    tag: 'Server',
    summary: 'Get the model that is being added, or was added last',
    description: 'Of this replica, since its start.',
    access: 'operator',
    answers: [{ status: 200, description: 'The last one.', schema: lastSchema }],
    handle: ({ services }) => Promise.resolve(lastOf(services)),
  }),
  route({
    method: 'post',
    path,
    operationId: 'addModel',
    tag: 'Server',
    summary: 'Add a model that this computer runs',
    description:
      'As `tokenhouse models add`: it is fetched, checked, asked a question and written into the configuration, which may take hours. One is added at a time. Without prices and `free` it is a draft: at price 0, for the accounts of operators alone.',
    access: 'operator',
    stepUp: true,
    body: Type.Object(
      {
        source: Type.String({
          maxLength: 1000,
          pattern: String.raw`^(hf:[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][^\s]*|https://[^\s]+)$`,
          description:
            '`hf:owner/repository[:QUANT | /file.gguf][@revision]`, or the https URL of a file. Files of the computer itself are added by the command.',
        }),
        model: Type.Optional(
          Type.String({ minLength: 1, maxLength: 128, description: 'Its id; default: the name of the file.' }),
        ),
        pricing: Type.Optional(
          Type.Object(
            { input_microcents_per_million: rate, output_microcents_per_million: rate },
            { additionalProperties: false },
          ),
        ),
        free: Type.Optional(Type.Boolean({ description: 'For every account, at price 0.' })),
      },
      { additionalProperties: false },
    ),
    answers: [{ status: 202, description: 'It is being added.', schema: additionSchema }],
    errors: ['http_404', 'http_409'],
    handle: async (call) => {
      const { source, model: id, pricing, free = false } = call.body;
      const { modelAdditions, configEditor } = call.services;
      if (modelAdditions === undefined) throw notThere();
      if (pricing !== undefined && free)
        throw new ApiError('unsupported_value', 'A model has prices or is free.', { param: 'free' });
      const problem = configEditor?.problem;
      if (problem !== undefined) throw new ApiError('http_409', problem);
      const dollars = (microcents: number): string => decimalText(BigInt(microcents), 8);
      const price =
        pricing === undefined
          ? undefined
          : `${dollars(pricing.input_microcents_per_million)}/${dollars(pricing.output_microcents_per_million)}`;
      await call.audit({ action: 'model.add', target: source, after: { id: id ?? null, price: price ?? null, free } });
      return additionObject(modelAdditions.start({ source, id, price, isFree: free }));
    },
  }),
  route({
    method: 'delete',
    path,
    operationId: 'stopModelAddition',
    tag: 'Server',
    summary: 'Stop adding a model',
    description: 'What was fetched stays, and another try goes on from there.',
    access: 'operator',
    answers: [{ status: 200, description: 'The last one.', schema: lastSchema }],
    handle: ({ services }) => {
      services.modelAdditions?.stop();
      return Promise.resolve(lastOf(services));
    },
  }),
];

function lastOf({ modelAdditions }: Call['services']) {
  const last = modelAdditions?.last();
  return { object: 'model_additions', last: last === undefined ? null : additionObject(last) };
}

function additionObject({ source, state, startedAt, progress, result }: ModelAddition) {
  const text = (name: string): string | null => (typeof result?.[name] === 'string' ? result[name] : null);
  const number = (name: string): number | null => (typeof result?.[name] === 'number' ? result[name] : null);
  const id = state === 'added' ? text('id') : null;
  return {
    object: 'model_addition',
    ...{ source, state, progress },
    started_at: secondsOf(startedAt),
    model:
      id === null
        ? null
        : {
            id,
            context_length: number('context_length'),
            answer: text('answer'),
            tokens_per_second: number('tokens_per_second'),
            is_in_force: result?.['is_in_force'] === true,
          },
    problem: state === 'failed' ? [text('error'), text('why')].filter((part) => part !== null).join('\n') : null,
  };
}
