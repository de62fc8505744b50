import { timesPrice, wholePrice, type Prices } from '../../catalog/pricing.ts';
import type { Path } from '../document.ts';
import {
  group,
  integer,
  list,
  number,
  optional,
  required,
  text,
  textLike,
  type Reading,
  type ValueOf,
} from '../setting.ts';
import { modelFile, type BackendConfig, type BackendsInFile, type OpenAiBackendConfig } from './backends.ts';
import { dedicatedTo, modelIdPattern } from './model-names.ts';
import { multiple, pricing } from './pricing.ts';

const adapter = group(
  'a fine-tuned adapter (LoRA) of the model, which becomes a model of its own; what is left out is as at the model',
  {
    id: required(textLike(modelIdPattern, 'the value of `model` in requests', { example: 'my-model-legal' })),
    adapter: text('its name on the servers; the id when left out', { example: 'legal' }),
    lora_id: integer(0, 1023, 'for llama-server, which knows no names: its place among the `--lora` files, from 0', {
      example: 0,
    }),
    file: optional(
      group('its GGUF file, for the embedded engine', modelFile, ({ sha256, ...others }) => ({
        ...others,
        sha256: sha256.toLowerCase(),
      })),
    ),
    scale: number(
      { minimum: -16, maximum: 16 },
      'how strongly llama-server or the embedded engine applies it',
      { default: 1 },
      (is) => is,
    ),
    display_name: text('name for people; the id when left out', { example: 'My Model, legal' }),
    description: text('a sentence about it', { example: 'Reads contracts.' }),
    owned_by: text('owner label of the card', { example: 'acme' }),
    dedicated_to: dedicatedTo('the only accounts that can see and use it'),
    price_multiple: multiple('its prices as a multiple of those of the model; at most four decimals'),
    pricing: optional(pricing),
  },
  (values, at, { report, show }) => {
    if (values.pricing !== undefined && values.priceMultiple !== undefined)
      report([...at, 'price_multiple'], 'the price is given twice, as pricing too; keep one of the two');
    show([...at, 'display_name'], values.displayName ?? values.id);
    return values;
  },
);

type Adapter = ValueOf<typeof adapter>;

/** With their places in the file. */
export const adapters = list(
  adapter,
  {
    maxItems: 256,
    description: 'fine-tuned adapters (LoRA) of the model that its servers have loaded; each is a model of its own',
    example: [{ id: 'my-model-legal', adapter: 'legal', price_multiple: 1.5 }],
  },
  (entries) => entries.map(([place, each]) => ({ ...each, place })),
);

export type AdapterConfig = Adapter & { readonly place: number };

/**
 * How a kind of server is told which adapter to use. `name`: it is a model of its own there. `lora_path`: SGLang, whose older versions
 * answer any name of a model with the base. `lora`: llama-server, which applies every adapter that it has loaded, except where a request
 * says otherwise. `file`: the embedded engine loads the model with it. Absent: it has no adapters.
 */
const ways: Partial<Record<OpenAiBackendConfig['flavor'], 'name' | 'lora_path' | 'lora'>> = {
  'llama-server': 'lora',
  ollama: 'name',
  openai: 'name',
  sglang: 'lora_path',
  tgi: 'name',
  vllm: 'name',
};

const wayOf = (backend: BackendConfig) =>
  backend.engine === 'openai' ? ways[backend.flavor] : backend.engine === 'llama' ? 'file' : undefined;

type Backends = Pick<BackendsInFile, 'sources' | 'disabled'> & { readonly backends: BackendsInFile['listed'] };

interface Base {
  readonly id: string;
  readonly adapters: readonly AdapterConfig[];
}

/** Reports adapters that a backend of their model cannot serve. */
export function reportUnservable(
  { adapters: all, writesText }: Base & { readonly writesText: boolean },
  backends: readonly BackendConfig[],
  at: Path,
  { report }: Reading,
): void {
  if (all.length === 0) return;
  const deaf = backends.find((backend) => wayOf(backend) === undefined);
  const loads = backends.find((backend) => backend.engine === 'openai' && backend.loadAdapters !== undefined);
  const hasScales = backends.some((backend) => wayOf(backend) === 'lora');
  const isEmbedded = backends.some((backend) => wayOf(backend) === 'file');
  if (deaf !== undefined)
    report(
      [...at, 'adapters'],
      `the backend "${deaf.name}" (${deaf.engine === 'openai' ? deaf.flavor : deaf.engine}) cannot apply an adapter to a request; serve the model by vLLM, SGLang, llama-server or the embedded engine, or remove the adapters`,
    );
  else if ((hasScales || isEmbedded) && !writesText)
    report(
      [...at, 'adapters'],
      'llama-server and the embedded engine apply adapters to text alone; remove them, or use vLLM',
    );
  for (const { id, adapter: name = id, loraId, file, place } of all) {
    if (loads !== undefined && name.split('/').some((part) => /^\.*$/.test(part)))
      report(
        [...at, 'adapters', place],
        `"${name}" is no folder below the \`folder\` of load_adapters ("${loads.name}"); write its name there as \`adapter\`, for example adapter: legal`,
      );
    if (isEmbedded && file === undefined)
      report(
        [...at, 'adapters', place],
        '"file" is missing, which the embedded engine applies; add it: { sources: ["legal.gguf"], sha256: … }',
      );
    if (hasScales && loraId === undefined)
      report(
        [...at, 'adapters', place],
        '"lora_id" is missing, without which llama-server does not know the adapter; add its place among the --lora files, for example lora_id: 0',
      );
  }
}

/** The backends of a model with adapters, or, with `of`, those of one of its adapters. */
export function backendsWith({ backends, sources, disabled }: Backends, base: Base, of?: AdapterConfig): Backends {
  const become = <Backend extends BackendConfig>(backend: Backend): Backend => backendFor(backend, base, of);
  return {
    backends: backends.map(become),
    sources: sources.map((source) => ({ ...source, template: become(source.template) })),
    disabled: disabled.map((each) => ({ ...each, template: become(each.template) })),
  };
}

function backendFor<Backend extends BackendConfig>(backend: Backend, base: Base, of: AdapterConfig | undefined) {
  if (backend.engine === 'llama' && of?.file !== undefined)
    return { ...backend, adapter: { ...of.file, scale: of.scale } };
  if (backend.engine !== 'openai' || base.adapters.length === 0) return backend;
  const there = backend.model ?? base.id;
  const name = of && (of.adapter ?? of.id);
  switch (wayOf(backend)) {
    case undefined:
    case 'file':
      return backend;
    case 'name':
      if (name === undefined) return backend;
      return {
        ...backend,
        model: name,
        adapter: { name, fields: {}, loadedBeside: backend.loadAdapters === undefined ? undefined : there },
      };
    case 'lora_path':
      return name === undefined
        ? backend
        : { ...backend, model: there, adapter: { name, fields: { lora_path: name } } };
    case 'lora': {
      // Each file once: the last of two entries counts. An empty list would leave all of them on.
      const ids = [...new Set(base.adapters.map(({ loraId = 0 }) => loraId))];
      const lora = ids.map((id) => ({ id, scale: id === of?.loraId ? of.scale : 0 }));
      return { ...backend, model: there, adapter: { name, fields: { lora } } };
    }
  }
}

export const pricingOf = ({ pricing: own, priceMultiple = wholePrice }: Adapter, base: Prices): Prices =>
  own ?? timesPrice(base, priceMultiple);
