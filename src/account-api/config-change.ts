/** Changes of the configuration file, as requests state them: the same ones as `backends add`, `models set` and their like make. */
import Type from 'typebox';
import type { Static } from 'typebox';

import type { Config, ModelConfig } from '../config/config.ts';
import { decimalText } from '../config/decimal.ts';
import { withEntry, withBackendDisabled, withModel, withoutModel, withSettings } from '../config/edit.ts';
import { isOfService } from '../config/environment.ts';
import { placeInFile } from '../config/sections/backends.ts';
import { ApiError } from '../platform/errors.ts';
import { notThere } from './input.ts';
import { nullable } from './wire.ts';

const closed = { additionalProperties: false } as const;
const modelId = Type.String({ minLength: 1, maxLength: 128 });
const backendName = Type.String({ minLength: 1, maxLength: 64 });
const rate = Type.Integer({ minimum: 0, maximum: 1_000_000_000_000_000 });

const pricing = Type.Object(
  {
    input_microcents_per_million: rate,
    output_microcents_per_million: rate,
    cache_read_microcents_per_million: Type.Optional(rate),
  },
  closed,
);

const dedicated = nullable(
  Type.Array(Type.String({ minLength: 1, maxLength: 64 }), {
    minItems: 1,
    maxItems: 1000,
    description: 'The only accounts that can see and use it; null: every account.',
  }),
);

/** In the names of the file; null removes a setting, so that its default applies. */
const settings = Type.Object(
  {
    display_name: Type.Optional(nullable(Type.String({ minLength: 1, maxLength: 1000 }))),
    description: Type.Optional(nullable(Type.String({ minLength: 1, maxLength: 1000 }))),
    aliases: Type.Optional(
      nullable(
        Type.Array(
          Type.Object(
            {
              name: modelId,
              listed: Type.Optional(Type.Boolean()),
              answers: Type.Optional(Type.Enum(['model', 'alias'])),
            },
            closed,
          ),
          { minItems: 1, maxItems: 64, description: 'Other names of the model in requests.' },
        ),
      ),
    ),
    dedicated_to: Type.Optional(dedicated),
    pricing: Type.Optional(pricing),
    context_length: Type.Optional(Type.Integer({ minimum: 16, maximum: 100_000_000 })),
    max_output_tokens: Type.Optional(nullable(Type.Integer({ minimum: 1, maximum: 100_000_000 }))),
    sampling: Type.Optional(Type.Enum(['honor', 'ignore', 'fixed'])),
    defaults: Type.Optional(
      nullable(
        Type.Object(
          {},
          {
            additionalProperties: Type.Union([Type.String({ maxLength: 10_000 }), Type.Number()]),
            description: 'What applies where a request says nothing; all of them, as they shall be.',
          },
        ),
      ),
    ),
    deprecation_date: Type.Optional(
      nullable(Type.String({ minLength: 10, maxLength: 10, description: 'The day of its retirement: 2027-06-30.' })),
    ),
    successor: Type.Optional(nullable(modelId)),
    leads_to_successor: Type.Optional(Type.Boolean()),
  },
  { ...closed, minProperties: 1 },
);

const addServer = Type.Object(
  {
    model: Type.String({
      minLength: 1,
      maxLength: 128,
      description: 'The id here: of a new model, or of one that gets another backend.',
    }),
    url: Type.String({ minLength: 1, maxLength: 2000, description: 'With its version path.' }),
    flavor: Type.String({ minLength: 1, maxLength: 32 }),
    model_there: Type.Optional(Type.String({ minLength: 1, maxLength: 1000 })),
    name: Type.Optional(backendName),
    api_key: Type.Optional(
      Type.String({ minLength: 1, maxLength: 4096, description: 'Written into the file, and never shown.' }),
    ),
    api_key_env: Type.Optional(
      Type.String({ minLength: 1, maxLength: 128, description: 'The variable with the key, where the file has none.' }),
    ),
    context_length: Type.Optional(Type.Integer({ minimum: 16, maximum: 100_000_000 })),
    capabilities: Type.Optional(
      Type.Object(
        {
          tools: Type.Optional(Type.Boolean()),
          reasoning: Type.Optional(Type.Boolean()),
          embeddings: Type.Optional(Type.Boolean()),
          rerank: Type.Optional(Type.Boolean()),
        },
        closed,
      ),
    ),
    pricing: Type.Optional(pricing),
    dedicated_to: Type.Optional(dedicated),
    draft: Type.Optional(
      Type.Boolean({ description: 'At price 0, for the accounts of operators alone, until it is sold.' }),
    ),
  },
  { ...closed, description: 'For a new model `context_length` and `pricing` or `draft` are needed.' },
);

const oneOf = 'Exactly one of these.';
export const changeFields = {
  add_server: Type.Optional(addServer),
  edit_model: Type.Optional(Type.Object({ model: modelId, set: settings }, { ...closed, description: oneOf })),
  remove_model: Type.Optional(Type.Object({ model: modelId }, { ...closed, description: oneOf })),
  set_backend: Type.Optional(
    Type.Object(
      { model: modelId, backend: backendName, disabled: Type.Boolean() },
      { ...closed, description: 'A disabled backend gets no requests, and is asked nothing.' },
    ),
  ),
};

const changeSchema = Type.Object(changeFields);
export type ConfigChange = Static<typeof changeSchema>;

/** What the change does to a text, whose configuration is `config`. Throws `ApiError`. */
export function editOf(change: ConfigChange): (text: string, config: Config) => string {
  const [first, ...others] = Object.keys(changeFields).filter(
    (name) => change[name as keyof ConfigChange] !== undefined,
  );
  if (first === undefined || others.length > 0)
    throw new ApiError('unsupported_value', `Name one change: ${Object.keys(changeFields).join(', ')}.`);
  const { add_server: added, edit_model: edited, remove_model: removed, set_backend: backend } = change;
  return (text, config) => {
    const changed =
      added !== undefined
        ? withServer(text, config, added)
        : edited !== undefined
          ? withSettings(text, modelOf(config, edited.model).id, settingsInFile(edited.set))
          : removed !== undefined
            ? withoutIt(text, config, removed.model)
            : withBackendSet(text, config, backend!);
    if (changed !== undefined) return changed;
    throw new ApiError(
      'unsupported_value',
      'This is not written in the file as an entry of its own, so it has to be changed by hand.',
    );
  };
}

const free = { input_microcents_per_million: 0, output_microcents_per_million: 0 };

/** A draft is for the accounts of operators; before there is one, for all. */
export async function withOperators(
  change: ConfigChange,
  operatorAccounts: () => Promise<readonly string[]>,
): Promise<ConfigChange> {
  const { add_server: added } = change;
  if (added?.draft !== true) return change;
  const { draft: _, ...rest } = added;
  const accounts = await operatorAccounts();
  const dedication = accounts.length === 0 ? {} : { dedicated_to: [...accounts] };
  return { ...change, add_server: { ...rest, pricing: free, ...dedication } };
}

/** For the audit log: what was asked, without the key of a server. */
export function shownChange({ add_server: added, ...others }: ConfigChange): object {
  if (added === undefined) return others;
  const { api_key: key, ...rest } = added;
  return { add_server: { ...rest, ...(key === undefined ? {} : { api_key: '(secret)' }) } };
}

/**
 * A server is sent the value of the variable, and its address is in the request too, so no secret of the service may be named here. The file
 * may name one: its author can read them all. Throws `ApiError`.
 */
export function checkVariable(name: string | undefined, param = 'api_key_env'): void {
  if (name !== undefined && isOfService(name))
    throw new ApiError('unsupported_value', `${name} belongs to the service, and no server gets it.`, { param });
}

/** The id of the model that a change is about. */
export const modelOfChange = ({
  add_server: a,
  edit_model: b,
  remove_model: c,
  set_backend: d,
}: ConfigChange): string => (a ?? b ?? c ?? d)?.model ?? '';

const named = ({ models }: Config, id: string): ModelConfig | undefined =>
  models.find((model) => model.id.toLowerCase() === id.toLowerCase());

function modelOf(config: Config, id: string): ModelConfig {
  const found = named(config, id);
  if (found === undefined) throw notThere();
  return found;
}

function withServer(text: string, config: Config, server: Static<typeof addServer>): string | undefined {
  const existing = config.file === undefined ? undefined : named(config, server.model);
  checkVariable(server.api_key_env, 'add_server.api_key_env');
  const { model, url, flavor, model_there: there, name, api_key: key, api_key_env: variable } = server;
  const backend = {
    engine: 'openai',
    ...(name === undefined ? {} : { name }),
    ...{ flavor, url },
    ...(there === undefined || there === (existing?.id ?? model) ? {} : { model: there }),
    ...(key === undefined ? {} : { api_key: key }),
    ...(variable === undefined ? {} : { api_key_env: variable }),
  };
  if (existing !== undefined) {
    // Its price and its buyers are those of the model: a free draft would be sold to everybody at once.
    if (server.pricing !== undefined || server.dedicated_to !== undefined)
      throw new ApiError(
        'unsupported_value',
        `${existing.id} exists, so pricing, dedicated_to and draft are left out: edit the model, or choose another id.`,
        { param: 'add_server.model' },
      );
    return withEntry(text, existing.id, 'backends', backend);
  }
  const { context_length: window, pricing: prices, dedicated_to: accounts, capabilities = {} } = server;
  if (window === undefined || prices === undefined)
    throw new ApiError('unsupported_value', 'A new model needs context_length and pricing.', {
      param: window === undefined ? 'add_server.context_length' : 'add_server.pricing',
    });
  const { embeddings, rerank, ...flags } = capabilities;
  const card = {
    ...flags,
    ...(embeddings === true ? { embeddings: { supported: true } } : {}),
    ...(rerank === true ? { rerank: { supported: true } } : {}),
  };
  return withModel(text, {
    id: model,
    context_length: window,
    pricing: pricesInFile(prices),
    ...(accounts === undefined || accounts === null ? {} : { dedicated_to: accounts }),
    ...(Object.keys(card).length === 0 ? {} : { capabilities: card }),
    backends: [backend],
  });
}

const settingsInFile = ({
  pricing: prices,
  ...others
}: Static<typeof settings>): Readonly<Record<string, unknown>> => ({
  ...others,
  ...(prices === undefined ? {} : { pricing: pricesInFile(prices) }),
});

function pricesInFile(prices: Static<typeof pricing>): Readonly<Record<string, number>> {
  const dollars = (microcents: number): number => Number(decimalText(BigInt(microcents), 8));
  const { input_microcents_per_million: input, output_microcents_per_million: output } = prices;
  const cached = prices.cache_read_microcents_per_million ?? input;
  return {
    input_dollars_per_million: dollars(input),
    output_dollars_per_million: dollars(output),
    ...(cached === input ? {} : { cache_read_dollars_per_million: dollars(cached) }),
  };
}

function withoutIt(text: string, config: Config, id: string): string | undefined {
  const found = modelOf(config, id);
  if (config.models.length === 1)
    throw new ApiError('http_409', `${found.id} is the only model, and a service needs one: add another one first.`);
  return withoutModel(text, found.id);
}

function withBackendSet(
  text: string,
  config: Config,
  { model: id, backend: name, disabled }: NonNullable<ConfigChange['set_backend']>,
): string | undefined {
  const model = modelOf(config, id);
  const listed = model.backends.findIndex((backend) => backend.name === name);
  const other = [...model.sources, ...model.disabled].find((each) => each.name === name);
  if (listed === -1 && other === undefined) throw notThere();
  return withBackendDisabled(text, model.id, other?.place ?? placeInFile(model, listed), disabled);
}
