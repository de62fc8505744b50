import type { BackendConfig, OpenAiFlavor } from './config.ts';

/** Abilities of a backend, beyond text. */
export const abilities = [
  'streaming',
  'vision',
  'tools',
  'toolStreaming',
  'reasoning',
  'preservesThinking',
  'jsonObject',
  'jsonSchema',
  'jsonSchemaRefs',
  'toolsWithResponseFormat',
  'n',
  'regex',
  'grammar',
  'logprobs',
  'logitBias',
] as const;
export type Ability = (typeof abilities)[number];

/**
 * `yes`: it can, and the card says so unless the file disables it. `may`: it depends on the model that it serves, so the file has
 * to say it. `no`: nothing can make it do that.
 */
export type Extent = 'yes' | 'may' | 'no';
type Row = Readonly<Record<Ability, Extent>>;

const all: Row = Object.fromEntries(abilities.map((ability) => [ability, 'yes'])) as Record<Ability, 'yes'>;

/** A server that is not ours: only the operator knows whether its model sees images or reasons. */
const server: Row = { ...all, vision: 'may', reasoning: 'may', preservesThinking: 'may' };

/** Kinds of backends that differ in their abilities. */
const rows: Readonly<Record<'llama' | 'scripted' | OpenAiFlavor, Row>> = {
  // Whether the template has think tags is known only when the file has been loaded.
  llama: { ...all, vision: 'no', reasoning: 'may', preservesThinking: 'may' },
  'llama-server': server,
  vllm: server,
  sglang: server,
  // The OpenAI API has no field for a regex, for a grammar, or for the reasoning of earlier turns.
  openai: { ...server, regex: 'no', grammar: 'no', preservesThinking: 'no' },
  // Plays whatever was prepared.
  scripted: { ...server, logprobs: 'may', logitBias: 'may' },
};

export const extentOf = (backend: BackendConfig, ability: Ability): Extent =>
  rows[backend.engine === 'openai' ? backend.flavor : backend.engine][ability];

/** The name used in messages. */
export const kindOf = (backend: BackendConfig): string =>
  backend.engine === 'openai' ? `${backend.engine}, flavor ${backend.flavor}` : backend.engine;
