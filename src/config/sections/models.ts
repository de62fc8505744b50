import { chatFlags, familyFlags, generalFlags, unlistedFlags, type CardFlag } from '../../catalog/card-flags.ts';
import {
  defaultableFields,
  defaultableNames,
  samplingDefaultsIn,
  type DefaultableName,
  type SamplingDefaults,
} from '../../generation/sampling-defaults.ts';
import { capabilitiesOf } from '../capabilities.ts';
import type { Path } from '../document.ts';
import type { SchemaNode } from '../../platform/schema-node.ts';
import {
  choice,
  flag,
  group,
  integer,
  list,
  milliseconds,
  number,
  optional,
  reportTwins,
  required,
  text,
  textLike,
  value,
  wordSchema,
  type Entry,
  type Reading,
  type Setting,
  type ValueOf,
} from '../setting.ts';
import { adapters, backendsWith, pricingOf, reportUnservable, type AdapterConfig } from './adapters.ts';
import { backends, type BackendConfig } from './backends.ts';
import { dedicatedTo, modelIdPattern } from './model-names.ts';
import { costs, multiple, pricing } from './pricing.ts';
import { reasoning } from './reasoning.ts';

/** Without a default: an omitted flag is derived from what the backends support (`capabilities.ts`). */
const flagSetting = ({ inFile, example = false, values }: CardFlag): Setting<unknown> =>
  values === undefined
    ? flag(inFile, { example })
    : list(value({ anyOf: Object.keys(values).map(wordSchema) }), {
        maxItems: Object.keys(values).length,
        description: inFile,
        example: Object.keys(values).slice(0, 2),
      });

const flagSettings = (flags: Readonly<Record<string, CardFlag>>) =>
  Object.fromEntries(Object.entries(flags).map(([key, each]) => [key, flagSetting(each)]));

/** A group whose members depend on each other, used as written. */
const asWritten = ({ schema, isRequired }: Setting<unknown>): Setting<Readonly<Record<string, unknown>>> => ({
  schema,
  isRequired,
  read: (written) => (written ?? {}) as Readonly<Record<string, unknown>>,
});

const capabilities = asWritten(
  group(
    'capabilities on the card; a flag that is left out is true when every backend can do it; requests that need a false flag are refused',
    {
      ...flagSettings({ ...generalFlags, ...unlistedFlags }),
      chat_completions: group('on /v1/chat/completions', flagSettings(chatFlags)),
      responses: group(
        'on /v1/responses; the flags of chat completions above apply here too',
        flagSettings(familyFlags.responses),
      ),
      messages: group(
        'on /v1/messages; the flags of chat completions above apply here too',
        flagSettings(familyFlags.messages),
      ),
      embeddings: group('on /v1/embeddings; false when left out', flagSettings(familyFlags.embeddings)),
      rerank: group('on /v1/rerank; false when left out', flagSettings(familyFlags.rerank)),
    },
  ),
);

const zdr = asWritten(
  group('differences for requests with `Service-ZDR: required`, which are sent only to backends marked `zdr`', {
    ...flagSettings({
      ...chatFlags,
      ...generalFlags,
      ...unlistedFlags,
      supported: { inFile: 'such requests are accepted; when left out, true if a backend is marked `zdr`' },
    }),
  }),
);

const defaultable = (name: DefaultableName): Setting<number | undefined> => {
  const { minimum, maximum, isWhole, example } = defaultableFields[name];
  const description = `\`${name}\` where a request has none`;
  return isWhole
    ? integer(minimum, maximum, description, { example })
    : number({ minimum, maximum }, description, { example }, (written) => written);
};

const defaults = group(
  "what applies where a request says nothing, field by field; sampling fields that are left out come from the model's file, or stay neutral",
  {
    system: textLike(
      '^[\\s\\S]{1,10000}$',
      'text of the system message of a conversation that has none; its tokens count as part of the prompt',
      { example: 'You are a helpful assistant.' },
    ),
    ...(Object.fromEntries(defaultableNames.map((name) => [name, defaultable(name)])) as Record<
      DefaultableName,
      Setting<number | undefined>
    >),
  },
  ({ system, ...sampling }) => ({
    system,
    sampling: samplingDefaultsIn((name) => sampling[defaultableFields[name].field]),
  }),
);

/** A better place is never cheaper than the usual one, nor a worse one dearer, so a downgrade costs no more than was asked. */
const tierPrice = (minimum: number, maximum: number) =>
  required(
    multiple('its price as a multiple of the usual one, also of the prices of an account; at most four decimals', {
      minimum,
      maximum,
    }),
  );
const betterPlacePrice = tierPrice(1, 100);
const worsePlacePrice = tierPrice(0, 1);

const tiers = group('service tiers besides default: places in the queue, and what they cost', {
  priority: optional(
    group('goes before all others', {
      price_multiple: betterPlacePrice,
      reserved_slots: integer(1, 1e6, 'slots that it keeps free of other requests', { example: 2 }),
    }),
  ),
  flex: optional(
    group('goes after all others, and waits longer', {
      price_multiple: worsePlacePrice,
      wait_seconds: number(
        { minimum: 1, maximum: 86_400 },
        'how long it may wait for a slot before it is refused',
        { default: 600, example: 600 },
        (seconds) => milliseconds(seconds, 1_000),
      ),
    }),
  ),
  batch: optional(group('lines of batches; half the usual price when left out', { price_multiple: worsePlacePrice })),
});

const maxOutputTokens: Setting<number | null> = {
  schema: {
    anyOf: [integer(1, 1e8, 'longest answer in tokens', { example: 4096 }).schema, { type: 'null' }],
    description: 'longest answer in tokens; null: as long as the window allows',
    examples: [4096],
    default: null,
  },
  isRequired: false,
  read: (written = null) => written as number | null,
};

/** In milliseconds. */
const hedgeAfter: Setting<number | 'p95' | undefined> = {
  schema: {
    anyOf: [
      wordSchema('p95'),
      number({ minimum: 0.05, maximum: 600 }, 'seconds without a token', { example: 2 }, (written) => written).schema,
    ],
    description:
      'asks a second backend when no text came in this many seconds, or after `p95`, what 95 of 100 requests of the model did not exceed lately; at most a tenth of the requests is asked for twice; off when left out',
    examples: ['p95'],
  },
  isRequired: false,
  read: (written) => (written === 'p95' || written === undefined ? written : 1_000 * (written as number)),
};

const alias = group(
  'another name of the model',
  {
    name: required(textLike(modelIdPattern, 'the name in requests', { example: 'my-old-name' })),
    listed: flag('whether the catalogue lists the name beside the id', { default: false }),
    answers: choice(['model', 'alias'], 'what answers to requests of this name say: the id of the model, or the name', {
      default: 'model',
    }),
  },
  ({ name, listed, answers }) => ({ name, isListed: listed, answers }),
);

const aliases = list(alias, {
  maxItems: 64,
  example: [{ name: 'my-old-name' }],
  description: 'other names of the model in requests',
});

const template = group('how messages become a prompt', {
  default_system: choice(['none', 'template'], 'whether the system message that the template adds by default is used', {
    default: 'template',
    example: 'none',
  }),
});

const model = (scriptSchema: SchemaNode) =>
  group(
    'a model that is served',
    {
      id: required(
        textLike(modelIdPattern, 'the value of `model` in requests', {
          example: 'my-model',
        }),
      ),
      display_name: text('name for people; the id when left out', { example: 'My Model' }),
      description: text('a sentence about the model', { example: 'Good at short answers.' }),
      owned_by: text('owner label of the card', { default: 'tokenhouse' }),
      tier: text('tier label of the card', { example: 'standard' }),
      deprecation_date: textLike(
        '^[0-9]{4}-[0-9]{2}-[0-9]{2}$',
        'the day on which the model is retired, at 00:00:00 UTC, without a restart; announced on its card',
        { example: '2027-06-30' },
      ),
      successor: textLike(
        modelIdPattern,
        'the id of the model to use instead after the retirement; named on the card',
        {
          example: 'my-newer-model',
        },
      ),
      leads_to_successor: flag(
        'whether requests that name this model are answered by its successor once it is retired',
        {
          default: false,
        },
      ),
      aliases,
      dedicated_to: dedicatedTo(
        'the only accounts that can see and use the model; their requests may carry `Service-Request-Tag`',
      ),
      adapters,
      context_length: required(integer(16, 1e8, 'tokens of prompt and answer together', { example: 8192 })),
      max_output_tokens: maxOutputTokens,
      pricing: required(pricing),
      costs: optional(costs),
      tiers,
      sampling: choice(['honor', 'ignore', 'fixed'], "handling of the client's temperature, top_p and penalties", {
        default: 'honor',
      }),
      defaults,
      capabilities,
      reasoning,
      zdr,
      template,
      fallback: list(textLike(modelIdPattern, 'the id of a model', { example: 'my-other-model' }), {
        maxItems: 8,
        example: ['my-other-model'],
        description:
          'models that may serve a request when no backend of this one can, in this order; each only where the key may use it and it can do what the request asks for; the answer names it, and its prices count; the `fallback` of those models is not followed',
      }),
      hedge: group(
        'a second backend for requests that get no text for long; the slower of the two is stopped, and not charged',
        {
          after: hedgeAfter,
        },
      ),
      backends: required(backends(scriptSchema)),
    },
    ({ capabilities: flags, reasoning: thinking, zdr: flagsOfZdr, backends: inFile, ...others }, at, reading) => {
      const { listed, sources, disabled } = inFile;
      const all = [...listed, ...[...sources, ...disabled].map(({ template }) => template)];
      const { maxOutputTokens: longest, contextLength, deprecationDate, id, displayName = id } = others;
      if (longest !== null && longest > contextLength)
        reading.report(
          [...at, 'max_output_tokens'],
          `max_output_tokens is above context_length (${contextLength}), so no answer can reach it; lower it, or write null`,
        );
      reportUnsentDefaults({ ...others, backends: all }, at, reading);
      reportTiersWithoutPlaces(others.tiers, all, at, reading);
      reportUnknownDay(deprecationDate, [...at, 'deprecation_date'], reading);
      reading.show([...at, 'display_name'], displayName);
      const promised = capabilitiesOf({ capabilities: flags, zdr: flagsOfZdr, reasoning: thinking }, all, {
        report: (inside, what) => reading.report([...at, ...inside], what),
        show: (inside, inUse) => reading.show([...at, ...inside], inUse),
      });
      const { embeddings, rerank } = promised.capabilities;
      const writesText = !embeddings.supported && !rerank.supported;
      reportUnservable({ ...others, writesText }, all, at, reading);
      const base = { ...others, displayName, ...promised, adapterOf: undefined as string | undefined };
      return { ...base, ...backendsWith({ backends: listed, sources, disabled }, base) };
    },
  );

type WrittenModel = ValueOf<ReturnType<typeof model>>;

/**
 * The model that an adapter of another one is: the only place that knows the difference. It is retired with its base, and nothing else
 * stands in for it.
 */
const adapterModel = (base: WrittenModel, adapter: AdapterConfig): WrittenModel => ({
  ...base,
  ...backendsWith(base, base, adapter),
  id: adapter.id,
  adapterOf: base.id,
  adapters: [],
  aliases: [],
  fallback: [],
  successor: undefined,
  leadsToSuccessor: false,
  displayName: adapter.displayName ?? adapter.id,
  description: adapter.description ?? base.description,
  ownedBy: adapter.ownedBy ?? base.ownedBy,
  dedicatedTo: adapter.dedicatedTo.length === 0 ? base.dedicatedTo : adapter.dedicatedTo,
  pricing: pricingOf(adapter, base.pricing),
});

/** Servers that do not accept the field in a request, and where it is set instead. */
export const deafServers: readonly {
  readonly flavor: string;
  readonly to: readonly string[];
  readonly instead: string;
}[] = [
  {
    flavor: 'ollama',
    to: ['top_k', 'min_p', 'repetition_penalty'],
    instead: "set it in the model's Modelfile, and remove this line",
  },
  { flavor: 'lm-studio', to: ['min_p'], instead: 'set it in LM Studio, and remove this line' },
  { flavor: 'tgi', to: ['top_k', 'min_p', 'repetition_penalty'], instead: 'remove this line' },
];

/** Reports defaults that are not sent: a server of flavor openai gets only the OpenAI API's fields, and those in `forward`. */
function reportUnsentDefaults(
  {
    defaults: { sampling },
    backends,
  }: { readonly defaults: { readonly sampling: SamplingDefaults }; readonly backends: readonly BackendConfig[] },
  at: Path,
  { report }: Reading,
): void {
  for (const name of ['top_k', 'min_p', 'repetition_penalty'] as const) {
    if (sampling[defaultableFields[name].field] === undefined) continue;
    for (const backend of backends) {
      if (backend.engine !== 'openai') continue;
      const { flavor, forward } = backend;
      const deaf = deafServers.find((each) => each.flavor === flavor && each.to.includes(name));
      if (deaf === undefined && (flavor !== 'openai' || forward.includes(name))) continue;
      report(
        [...at, 'defaults', name],
        deaf === undefined
          ? `the backend "${backend.name}" would not be sent ${name}; add it to the \`forward\` of that backend, or remove this line`
          : `the backend "${backend.name}" (${flavor}) takes no ${name} in a request; ${deaf.instead}`,
      );
      break;
    }
  }
}

/** An embedded engine has a queue of its own, in which all are equal: nobody should pay more, or less, for a place that is no other. */
function reportTiersWithoutPlaces(
  { priority, flex }: ValueOf<typeof tiers>,
  backends: readonly BackendConfig[],
  at: Path,
  { report }: Reading,
): void {
  if (!backends.some(({ engine }) => engine === 'llama')) return;
  for (const [name, tier] of Object.entries({ priority, flex }))
    if (tier !== undefined)
      report(
        [...at, 'tiers', name],
        `an embedded model serves its requests as they come, so there is no place ${name} to sell; remove this, or serve the model by a server`,
      );
}

/** Needed because the pattern accepts the 31st of February. */
function reportUnknownDay(day: string | undefined, at: Path, { report }: Reading): void {
  const time = Date.parse(`${day}T00:00:00Z`);
  if (day !== undefined && !(Number.isFinite(time) && new Date(time).toISOString().startsWith(day)))
    report(at, `the day ${day} does not exist, so the model would never be retired; write a date such as 2027-06-30`);
}

/** At least one; ids are unique even ignoring case (specification §2.2). */
export const models = (scriptSchema: SchemaNode) =>
  list(
    model(scriptSchema),
    { minItems: 1, maxItems: 1000, description: 'the served models' },
    (written, at, { report }) => {
      const entries = written.flatMap(([index, base]): readonly Entry<WrittenModel>[] => [
        [index, base],
        ...base.adapters.map((adapter) => [index, adapterModel(base, adapter)] as const),
      ]);
      const places = written.flatMap(([index, { adapters: own }]) => [
        [index],
        ...own.map(({ place }) => [index, 'adapters', place]),
      ]);
      reportTwins(
        entries.map(([, each], order) => [order, each]),
        ({ id }) => id.toLowerCase(),
        ([order, { id }], earlier) =>
          report(
            [...at, ...places[order]!, 'id'],
            `the id "${id}" is the same as "${earlier.id}" (case is ignored), so requests would be ambiguous; rename one`,
          ),
      );
      reportNames(entries, at, report);
      reportFallbacks(entries, at, report);
      return entries.map(([, each]) => each);
    },
  );

interface NamedConfig {
  readonly id: string;
  readonly aliases: readonly { readonly name: string }[];
  readonly deprecationDate: string | undefined;
  readonly successor: string | undefined;
  readonly leadsToSuccessor: boolean;
}

/** Reports a name that means two models, and a successor that leads nowhere. */
function reportNames(entries: readonly (readonly [number, NamedConfig])[], at: Path, report: Reading['report']): void {
  const byName = new Map(entries.map(([, { id }]) => [id.toLowerCase(), id]));
  const ids = new Map(byName);
  for (const [index, { id, aliases, successor, deprecationDate, leadsToSuccessor }] of entries) {
    for (const [place, { name }] of aliases.entries()) {
      const other = byName.get(name.toLowerCase());
      if (other !== undefined)
        report([...at, index, 'aliases', place, 'name'], `"${name}" names "${other}" already; remove one of the two`);
      byName.set(name.toLowerCase(), id);
    }
    const meant = successor === undefined ? undefined : ids.get(successor.toLowerCase());
    if (successor !== undefined && (meant === undefined || meant === id))
      report([...at, index, 'successor'], `there is no other model "${successor}"; write the id of one under models`);
    if (leadsToSuccessor && (successor === undefined || deprecationDate === undefined))
      report(
        [...at, index, 'leads_to_successor'],
        'it leads nowhere without a successor and a deprecation_date; add them, or remove it',
      );
  }
}

interface FallbackConfig extends Pick<ReturnType<typeof capabilitiesOf>, 'capabilities'> {
  readonly id: string;
  readonly fallback: readonly string[];
}

/** Reports a fallback that is not another model that generates text, or is named twice. */
function reportFallbacks(
  entries: readonly (readonly [number, FallbackConfig])[],
  at: Path,
  report: Reading['report'],
): void {
  const byId = new Map(entries.map(([, entry]) => [entry.id.toLowerCase(), entry]));
  const measures = ({ capabilities: { embeddings, rerank } }: FallbackConfig): boolean =>
    embeddings.supported || rerank.supported;
  for (const [index, entry] of entries) {
    const { id, fallback } = entry;
    if (fallback.length > 0 && measures(entry))
      report([...at, index, 'fallback'], 'vectors and scores of another model are no substitute; remove the line');
    for (const [place, other] of fallback.entries()) {
      const name = other.toLowerCase();
      const inFile = [...at, index, 'fallback', place];
      const meant = byId.get(name);
      if (name === id.toLowerCase()) report(inFile, `"${other}" is the model itself; name another one, or remove it`);
      else if (meant === undefined)
        report(inFile, `there is no model "${other}"; write the id of one under models, or remove it`);
      else if (fallback.findIndex((each) => each.toLowerCase() === name) < place)
        report(inFile, `"${other}" is listed twice; keep the first`);
      else if (measures(meant)) report(inFile, `"${other}" generates no text; name another model, or remove it`);
    }
  }
}

export type ModelConfig = ValueOf<ReturnType<typeof models>>[number];
