/** From what is set on the page to what is asked of a model. Pure. */
import type { Row } from '../../api/use-api.ts';
import type { Asked, Format, Parameters, Tool, Turn } from './conversation.ts';
import { families } from './families/families.ts';
import type { Request } from './run.ts';
import { familyNames } from './search.ts';
import type { FamilyName, Search } from './search.ts';

export type Model = Row<'/v1/models/cards'>;
export type Feature = Model['endpoints'][number]['features'][number];

export interface NumberParameter {
  readonly name: Exclude<keyof Parameters, 'effort' | 'stop'>;
  readonly min?: number;
  readonly max?: number;
  readonly step: number | 'any';
  /** Models that keep their own sampling do not have it. */
  readonly isSampling?: true;
  /** The messages API has it too. */
  readonly inMessages?: true;
}

export const numberParameters: readonly NumberParameter[] = [
  { name: 'max_tokens', min: 1, step: 1, inMessages: true },
  { name: 'temperature', min: 0, max: 2, step: 'any', isSampling: true, inMessages: true },
  { name: 'top_p', min: 0, max: 1, step: 'any', isSampling: true, inMessages: true },
  { name: 'seed', step: 1 },
  { name: 'top_k', min: -1, step: 1, inMessages: true },
  { name: 'min_p', min: 0, max: 1, step: 'any' },
  { name: 'frequency_penalty', min: -2, max: 2, step: 'any', isSampling: true },
  { name: 'presence_penalty', min: -2, max: 2, step: 'any', isSampling: true },
  { name: 'repetition_penalty', min: 0, max: 10, step: 'any' },
];

/** The ones that requests of this family to this model can have. */
export const parametersOf = (family: FamilyName, { sampling }: Model): readonly NumberParameter[] =>
  numberParameters.filter(
    ({ isSampling, inMessages }) =>
      (isSampling !== true || sampling === 'honor') && (inMessages === true || family !== 'messages'),
  );

/** Those that the model can choose from; fewer than two are no choice. */
export const effortsOf = (family: FamilyName, { card }: Model): readonly string[] => {
  const { efforts } = card.service.capabilities.reasoning_effort;
  return family === 'completions' || efforts.length < 2 ? [] : efforts;
};

/** undefined: the model cannot be asked this way. */
export const featuresOf = (family: FamilyName, model: Model): readonly Feature[] | undefined =>
  model.endpoints.find(({ path }) => path === families[family].path)?.features;

/** What was written, beside what is in the URL. */
export interface Written {
  readonly system: string;
  /** JSON, as typed. */
  readonly tools: string;
  readonly schema: string;
}

/** A text that should be JSON; `fault` says where it is none. */
export type Parsed<Value> = { readonly value: Value } | { readonly fault: string };

function jsonOf(text: string): Parsed<unknown> {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { fault: error instanceof Error ? error.message : String(error) };
  }
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Functions in a list or one alone, each by itself or as chat completions wraps it. */
export function readTools(text: string): Parsed<readonly Tool[]> {
  if (text.trim() === '') return { value: [] };
  const parsed = jsonOf(text);
  if ('fault' in parsed) return parsed;
  const tools: Tool[] = [];
  for (const [at, one] of (Array.isArray(parsed.value) ? (parsed.value as unknown[]) : [parsed.value]).entries()) {
    const tool = isObject(one) && isObject(one['function']) ? one['function'] : one;
    if (!isObject(tool) || typeof tool['name'] !== 'string' || tool['name'] === '') return { fault: `[${at}].name` };
    const { name, description, parameters } = tool;
    tools.push({
      name,
      ...(typeof description === 'string' ? { description } : {}),
      ...(parameters === undefined ? {} : { parameters }),
    });
  }
  return { value: tools };
}

/** The form that the answer is to have. */
export function readFormat(kind: Search['format'], schema: string): Parsed<Format> {
  if (kind === undefined) return { value: { kind: 'text' } };
  if (kind === 'json_object') return { value: { kind } };
  const parsed = jsonOf(schema);
  if ('fault' in parsed) return parsed;
  if (!isObject(parsed.value)) return { fault: '{ … }' };
  return { value: { kind, schema: parsed.value } };
}

/** What is asked of one model; what it cannot do is not asked. undefined: what was written is no JSON. */
export function askedOf(search: Search, written: Written, model: Model, turns: readonly Turn[]): Asked | undefined {
  const family = search.family ?? 'chat';
  const features = featuresOf(family, model) ?? [];
  const has = (feature: Feature): boolean => features.includes(feature);
  const tools = has('tools') ? readTools(written.tools) : { value: [] };
  const wanted = search.format !== undefined && has(search.format) ? search.format : undefined;
  const format = readFormat(wanted, written.schema);
  if ('fault' in tools || 'fault' in format) return undefined;
  const isWithTools = tools.value.length > 0;
  return {
    model: model.model,
    stream: search.whole !== true && has('streaming') && (!isWithTools || has('tool_streaming')),
    system: family === 'completions' ? '' : written.system,
    turns,
    tools: tools.value,
    toolChoice: search.tool_choice ?? 'auto',
    format: format.value,
    parameters: parametersIn(search, family, model),
  };
}

function parametersIn(search: Search, family: FamilyName, model: Model): Parameters {
  const numbers = parametersOf(family, model).flatMap(({ name }) =>
    search[name] === undefined ? [] : [[name, search[name]] as const],
  );
  const efforts = effortsOf(family, model);
  const stop = (search.stop ?? '').split('\n').filter((line) => line !== '');
  return {
    ...Object.fromEntries(numbers),
    ...(search.effort !== undefined && efforts.includes(search.effort) ? { effort: search.effort } : {}),
    ...(stop.length === 0 ? {} : { stop }),
  };
}

/** The request that is sent, and that code is exported of. */
export function requestOf(
  url: string,
  search: Search,
  written: Written,
  model: Model,
  turns: readonly Turn[],
): Request | undefined {
  const family = families[search.family ?? 'chat'];
  const asked = askedOf(search, written, model, turns);
  if (asked === undefined) return undefined;
  const isZdr = search.zdr === true && model.card.zdr_supported;
  return { url, family, headers: isZdr ? { 'service-zdr': 'required' } : {}, body: family.body(asked) };
}

/** Those that write answers, in whatever way. */
export const askable = (models: readonly Model[]): readonly Model[] =>
  models.filter((model) => familyNames.some((family) => featuresOf(family, model) !== undefined));

/** The models of the URL, as far as they are there; otherwise the first one. */
export function chosenModels(search: Search, models: readonly Model[]): readonly Model[] {
  const chosen = [search.model, search.model2, search.model3].flatMap(
    (id) => models.find(({ model }) => id !== undefined && model.toLowerCase() === id.toLowerCase()) ?? [],
  );
  return chosen.length > 0 ? chosen : models.slice(0, 1);
}

/** For the URL. */
export const withModels = (ids: readonly (string | undefined)[]): Pick<Search, 'model' | 'model2' | 'model3'> => ({
  model: ids[0],
  model2: ids[1],
  model3: ids[2],
});
