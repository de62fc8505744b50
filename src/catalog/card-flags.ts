import type { FlavorName } from '../generation/flavor-names.ts';
import type { Effort } from '../generation/request.ts';
import { camel, type Camel } from '../platform/camel-case.ts';

/**
 * The flags of a model's card (specification §2.3), each defined once: the keys of `tokenhouse.yaml`, the capabilities that requests are
 * checked against, the card, and its description are derived from these tables.
 */
export interface CardFlag {
  /** Description for the author of `tokenhouse.yaml`. */
  readonly inFile: string;
  readonly example?: boolean;
  /** Description for readers of the card; without it the flag is not on the card. */
  readonly onCard?: string;
  /** Which backends support it; omitted: all of them. */
  readonly backends?: Extents;
  /** Flags that it requires, by their keys in the file; in a nested list one is enough, and messages name the first. */
  readonly needs?: readonly (string | readonly string[])[];
  /** Flags that rule it out: a model that only measures texts does not write any. */
  readonly unless?: readonly string[];
  /** Its value is a list of some of these, each with the flags that it requires. */
  readonly values?: Readonly<Record<string, readonly string[]>>;
}

/** Kinds of backends that differ in their abilities: the engine, or for the engine `openai` the flavor. */
export type BackendKind = 'llama' | 'scripted' | FlavorName;

/**
 * `yes`: supported, and on the card unless the file disables it. `may`: depends on the served model, so the file has to state it. `no`: not
 * possible.
 */
export type Extent = 'yes' | 'may' | 'no';

/** Kinds that are not listed use `others`, and `yes` without it. */
export type Extents = Readonly<Partial<Record<BackendKind | 'others', Extent>>>;

export const extentOf = (kind: BackendKind, extents: Extents = {}): Extent => extents[kind] ?? extents.others ?? 'yes';

type Flags = Readonly<Record<string, CardFlag>>;

/** A server loads a model either to write or to measure; a model with one of these flags does not write. */
const measuring = ['embeddings.supported', 'rerank.supported'] as const;

/** Flags of all API families. Only the operator knows whether a server's model sees images or reasons. */
export const generalFlags = {
  vision: {
    inFile: 'accepts images; false when left out, because it depends on the model',
    example: true,
    onCard: 'Takes images.',
    backends: { llama: 'no', others: 'may' },
  },
  tools: { inFile: 'calls functions', onCard: 'Calls functions.', unless: measuring, backends: { tei: 'no' } },
  reasoning: {
    inFile:
      'returns its reasoning separately from the answer; when left out, true when `reasoning.efforts` lists more than none',
    example: true,
    onCard: 'Returns its reasoning separately from the answer.',
    // Whether an embedded model's template has think tags is known only when the file has been loaded.
    backends: { others: 'may' },
  },
} as const satisfies Flags;

/** Flags of chat completions that are not on the card (contracts decision 20). */
export const unlistedFlags = {
  logprobs: { inFile: 'reports logprobs of tokens', backends: { scripted: 'may', 'lm-studio': 'no' } },
  logit_bias: { inFile: 'accepts logit_bias', backends: { scripted: 'may', ollama: 'no', tgi: 'no' } },
} as const satisfies Flags;

const available = { inFile: 'the model is available there', onCard: 'Whether the endpoint takes this model.' };
const supported = { ...available, unless: measuring, backends: { tei: 'no' } } as const;
const streaming = { inFile: 'streamed answers', onCard: 'Whether `stream: true` is taken.' };
const tools = { inFile: 'function calling', onCard: 'Whether tools are taken.' };
const toolStreaming = {
  inFile: 'streaming of tool calls',
  onCard: 'Whether tools are taken with `stream: true`.',
};

export const chatFlags = {
  supported,
  streaming: { ...streaming, needs: ['chat_completions.supported'] },
  tools: { ...tools, needs: ['chat_completions.supported', 'tools'] },
  tool_streaming: { ...toolStreaming, needs: ['chat_completions.tools', 'chat_completions.streaming'] },
  json_object: {
    inFile: 'answers as a JSON object',
    onCard: 'Whether `response_format` may be `json_object`.',
    needs: ['chat_completions.supported'],
    // TGI makes a regular expression from a schema, which has to name the fields.
    backends: { tgi: 'no' },
  },
  json_schema: {
    inFile: 'answers that match a JSON Schema',
    onCard: 'Whether `response_format` may be `json_schema`.',
    needs: ['chat_completions.supported'],
  },
  json_schema_refs: {
    inFile: 'local $ref in schemas',
    onCard: 'Whether schemas may have local `$ref`s.',
    needs: ['chat_completions.supported', ['chat_completions.json_schema', 'chat_completions.tools']],
  },
  tools_with_response_format: {
    inFile: 'tools and response_format in one request',
    onCard: 'Whether tools and `response_format` may be sent together.',
    needs: [
      'chat_completions.tools',
      ['chat_completions.json_schema', 'chat_completions.json_object', 'chat_completions.grammar'],
    ],
    // Ollama applies the format to the call as well, TGI refuses it, LM Studio does not say.
    backends: { 'lm-studio': 'no', ollama: 'no', tgi: 'no' },
  },
  n: {
    inFile: 'several answers to one request',
    onCard: 'Whether `n` may be above 1.',
    needs: ['chat_completions.supported'],
    backends: { 'lm-studio': 'no', ollama: 'no', tgi: 'no' },
  },
  // The OpenAI API has no field for a regex or a grammar, and neither have LM Studio and Ollama.
  regex: {
    inFile: 'answers that match a regular expression',
    onCard: 'Whether `regex` is taken.',
    needs: ['chat_completions.supported'],
    backends: { 'lm-studio': 'no', ollama: 'no', openai: 'no' },
  },
  grammar: {
    inFile: 'answers that match a grammar',
    onCard: 'Whether `response_format` may be `grammar`.',
    needs: ['chat_completions.supported'],
    backends: { 'lm-studio': 'no', ollama: 'no', openai: 'no', tgi: 'no' },
  },
} as const satisfies Flags;

export const responsesFlags = {
  supported,
  streaming: { ...streaming, needs: ['chat_completions.streaming', 'responses.supported'] },
  tools: { ...tools, needs: ['tools', 'responses.supported'] },
  text_format: {
    inFile: 'accepted values of text.format.type',
    onCard: 'Values that `text.format.type` may have.',
    needs: ['responses.supported'],
    values: {
      text: [],
      json_object: ['chat_completions.json_object'],
      json_schema: ['chat_completions.json_schema'],
    },
  },
  raw_json_schema_text: {
    inFile: 'output that follows a schema is raw JSON text',
    onCard: 'Whether JSON comes raw, without Markdown fences.',
    needs: ['responses.text_format.json_schema', 'responses.supported'],
  },
} as const satisfies Flags;

export const messagesFlags = {
  supported,
  streaming: { ...streaming, needs: ['chat_completions.streaming', 'messages.supported'] },
  tools: { ...tools, needs: ['tools', 'messages.supported'] },
  tool_streaming: {
    ...toolStreaming,
    needs: ['chat_completions.tool_streaming', 'messages.tools', 'messages.streaming'],
  },
  vision: { inFile: 'images there', onCard: 'Whether images are taken.', needs: ['vision', 'messages.supported'] },
  reasoning: {
    inFile: 'reasoning there',
    onCard: 'Whether reasoning comes in blocks of its own.',
    needs: ['reasoning', 'messages.supported'],
  },
} as const satisfies Flags;

export const embeddingsFlags = {
  supported: {
    inFile: 'the model makes embeddings there; it then generates no text',
    onCard: available.onCard,
    example: true,
    // LM Studio makes embeddings but counts no tokens of their texts, so they would cost nothing.
    backends: { 'lm-studio': 'no', tgi: 'no', others: 'may' },
  },
  dimensions: {
    inFile: 'its vectors may be cut to the `dimensions` of a request (Matryoshka)',
    onCard: 'Whether `dimensions` is taken.',
    example: true,
    needs: ['embeddings.supported'],
    backends: { others: 'may' },
  },
} as const satisfies Flags;

export const rerankFlags = {
  supported: {
    inFile: 'the model ranks documents there; it then generates no text',
    onCard: available.onCard,
    example: true,
    backends: { 'lm-studio': 'no', ollama: 'no', openai: 'no', tgi: 'no', others: 'may' },
  },
} as const satisfies Flags;

/** Under their keys in the file. */
export const familyFlags = {
  chat_completions: chatFlags,
  responses: responsesFlags,
  messages: messagesFlags,
  embeddings: embeddingsFlags,
  rerank: rerankFlags,
} as const satisfies Readonly<Record<string, Flags>>;

/** Which backends accept the reasoning of earlier turns: not a flag of the card, but refused alike. The OpenAI API has no field for it. */
export const reasoningOfEarlierTurns: Extents = {
  ...{ others: 'may', 'lm-studio': 'no', ollama: 'no', openai: 'no', tgi: 'no' },
};

type ValuesOf<Of extends Flags> = {
  readonly [Key in keyof Of & string as FieldOf<Key, Of[Key]>]: Of[Key] extends { readonly values: infer Values }
    ? readonly (keyof Values)[]
    : boolean;
};
type FieldOf<Key extends string, Flag> = Flag extends { readonly values: object } ? `${Camel<Key>}s` : Camel<Key>;

/** What a request can ask of a model, in any family: the flags of chat completions, and those that are not among them. */
export const featureFlags = [
  ...namesOf(chatFlags).filter((name) => name !== 'supported'),
  ...namesOf(unlistedFlags),
  ...namesOf(generalFlags).filter((name) => !(name in chatFlags)),
  'dimensions',
] as const;
export type FeatureFlag =
  Exclude<keyof typeof chatFlags, 'supported'> | keyof typeof unlistedFlags | keyof typeof generalFlags | 'dimensions';

/** The path of a flag in the file's `capabilities`, general flags before chat completions; undefined: no such flag. */
export const placeOfFlag = (name: string): readonly string[] | undefined =>
  name in generalFlags || name in unlistedFlags ? [name] : name in chatFlags ? ['chat_completions', name] : undefined;

/** Whether a card promises it in chat completions; undefined: no such flag. */
export function promiseOf(name: string, capabilities: Capabilities): boolean | undefined {
  const values = [
    ...(name in generalFlags ? [capabilities[name as keyof typeof generalFlags]] : []),
    ...(name in chatFlags || name in unlistedFlags
      ? [capabilities.chat[camel(name) as keyof Capabilities['chat']]]
      : []),
  ];
  return values.length === 0 ? undefined : values.every(Boolean);
}

function namesOf<Of extends Flags>(flags: Of): readonly (keyof Of & string)[] {
  return Object.keys(flags);
}

/** The property of the capabilities for a flag: `text_format`, a list, is `textFormats`. */
export const fieldOf = (key: string, { values }: CardFlag): string => `${camel(key)}${values === undefined ? '' : 's'}`;

/** What a model's card promises for one API family or for all of them (specification §2.3). */
export interface Capabilities extends ValuesOf<typeof generalFlags> {
  readonly chat: ValuesOf<typeof chatFlags> & ValuesOf<typeof unlistedFlags>;
  readonly responses: ValuesOf<typeof responsesFlags>;
  readonly messages: ValuesOf<typeof messagesFlags>;
  readonly embeddings: ValuesOf<typeof embeddingsFlags>;
  readonly rerank: ValuesOf<typeof rerankFlags>;
  /** Whether requests with `Service-ZDR: required` are accepted at all. */
  readonly zdr: boolean;
  /** Not empty. Without `none` the model always reasons. */
  readonly efforts: readonly Effort[];
  /** One of `efforts`. */
  readonly defaultEffort: Effort;
  /** Tokens that an answer may have beyond `max_tokens` while it reasons (specification §4.2.1(5)); 0: no extra. */
  readonly reasoningRoomTokens: number;
  /** With effort `none` it still reasons, which is neither returned nor counted as reasoning (§4.2.5(4), contracts decision 25). */
  readonly hidesReasoning: boolean;
  /** Its reasoning stays in the content, between think tags (§4.2.5(1)). */
  readonly inlinesReasoning: boolean;
  /** Accepts the reasoning of earlier turns (§4.2.5(7)). */
  readonly preservesThinking: boolean;
}

/** Whether the model writes answers at all. */
export const generatesText = ({ embeddings, rerank }: Pick<Capabilities, 'embeddings' | 'rerank'>): boolean =>
  !embeddings.supported && !rerank.supported;

/** The flags that are on the card, under the card's names. */
export const flagsOnCard = <const Of extends Flags>(flags: Of, values: ValuesOf<Of>): OnCard<Of> =>
  Object.fromEntries(
    Object.entries(flags)
      .filter(([, { onCard }]) => onCard !== undefined)
      .map(([key, flag]) => [key, values[fieldOf(key, flag) as keyof typeof values]]),
  ) as object as OnCard<Of>;
type OnCard<Of extends Flags> = {
  readonly [Key in keyof Of as Of[Key] extends { readonly onCard: string } ? Key : never]: Of[Key] extends {
    readonly values: infer Values;
  }
    ? readonly (keyof Values)[]
    : boolean;
};
