import type { ErrorCode } from '../../../platform/errors.ts';
import type { FromSchema, SchemaNode } from '../../../platform/schema-node.ts';
import { words, type ScriptRule, type ScriptStep } from './script.ts';

/** Codes that an engine may fail with; the others would wrongly blame the client. */
const faultCodes = [
  'backend_http_error',
  'backend_timeout',
  'backend_connect_error',
  'backend_overloaded',
  'backend_at_capacity',
  'no_healthy_backends',
  'context_length_exceeded',
  'internal_error',
] as const satisfies readonly ErrorCode[];

type Properties = Readonly<Record<string, SchemaNode>>;
const group = <const Of extends Properties, const Rest extends Pick<SchemaNode, 'required' | 'description'>>(
  properties: Of,
  rest: Rest,
) => ({ type: 'object' as const, properties, additionalProperties: false, ...rest });
const oneOf = <const Word extends string>(...words: readonly Word[]) => ({
  anyOf: words.map((word) => ({ type: 'string' as const, const: word })),
});
const string = (description: string) => ({ type: 'string', description }) as const;
const count = (description: string) => ({ type: 'integer', minimum: 0, description }) as const;
const milliseconds = (description: string) =>
  ({ type: 'integer', minimum: 0, maximum: 3_600_000, description, default: 0 }) as const;
/** A text is cut into words; a list is played piece by piece, unchanged. */
const text = (description: string) =>
  ({
    anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' }, maxItems: 100_000 }],
    description,
  }) as const;

/** One rule of `scripts` in tokenhouse.yaml: plain JSON, so that reading a configuration loads no library for it. */
export const scriptSchema = group(
  {
    when: group(
      {
        model: string('id of the model'),
        last_text: string('a part of the text of the last message'),
        last_role: { ...oneOf('system', 'user', 'assistant', 'tool'), description: 'role of the last message' },
        tools: { type: 'boolean', description: 'whether tools are offered' },
        turn: count('how many assistant messages the conversation has'),
      },
      { description: 'Conditions, all of which must hold. A rule without them always applies.' },
    ),
    say: {
      type: 'array',
      items: {
        anyOf: [
          group(
            { reasoning: text('reasoning; split into words, or a list of pieces that are kept') },
            { required: ['reasoning'] },
          ),
          group({ text: text('text; split into words, or a list of pieces that are kept') }, { required: ['text'] }),
          group(
            {
              tool_call: group(
                {
                  name: { type: 'string', minLength: 1, maxLength: 256, description: 'called' },
                  arguments: {
                    anyOf: [text('JSON, complete or in pieces'), { type: 'object' }],
                    description: 'with these arguments',
                    default: {},
                  },
                },
                { required: ['name'] },
              ),
            },
            { required: ['tool_call'] },
          ),
        ],
      },
      maxItems: 1_000,
      description: 'The answer, in order.',
    },
    repeat: { type: 'integer', minimum: 1, maximum: 1_000_000, description: 'how often `say` is played', default: 1 },
    first_token_ms: milliseconds('wait before the first token'),
    pace_ms: milliseconds('time between tokens'),
    chunk: {
      ...oneOf('word', 'character', 'whole'),
      description: 'how texts are cut into tokens; `character` with a long pace is a slow drip',
      default: 'word',
    },
    fault: group(
      {
        after_tokens: count('the answer fails after this number of tokens'),
        type: {
          ...oneOf('cut', 'hang', 'error'),
          description: 'ends without a finish, stalls, or fails with the code',
        },
        code: { enum: faultCodes, description: 'code of the error', default: 'backend_http_error' },
      },
      {
        required: ['after_tokens', 'type'],
        description: 'Ends without a finish, stalls, or fails, after this number of tokens of each choice.',
      },
    ),
    usage: {
      anyOf: [
        { type: 'string', const: 'none' },
        group({ prompt_tokens: {}, cached_tokens: {}, completion_tokens: {}, reasoning_tokens: {} }, {}),
      ],
      description: 'usage to report instead of the true one, possible or not; none reports nothing',
    },
    prompt_tokens: count('length of the prompt, instead of counting'),
  },
  { required: ['say'] },
);

export type ScriptSettings = FromSchema<typeof scriptSchema>;

/** Maximum tokens that one rule may play. */
const tokensMax = 1_000_000;

/** Converts a rule to the engine's own form. Throws a readable `RangeError` for errors that the schema cannot express. */
export function scriptRule(settings: ScriptSettings): ScriptRule {
  const chunk = settings.chunk ?? 'word';
  const steps = settings.say.map((step) => stepOf(step, chunk));
  const repeat = settings.repeat ?? 1;
  const tokens = repeat * steps.reduce((sum, step) => sum + pieceCount(step), 0);
  if (tokens > tokensMax) throw new RangeError(`a script of ${tokens} tokens is longer than ${tokensMax}`);
  const { when, fault, usage } = settings;
  return {
    when:
      when === undefined
        ? undefined
        : { model: when.model, lastText: when.last_text, lastRole: when.last_role, tools: when.tools, turn: when.turn },
    steps,
    repeat,
    firstTokenMs: settings.first_token_ms ?? 0,
    paceMs: settings.pace_ms ?? 0,
    fault:
      fault === undefined
        ? undefined
        : { afterTokens: fault.after_tokens, type: fault.type, code: fault.code ?? 'backend_http_error' },
    usage:
      usage === undefined || typeof usage === 'string'
        ? usage
        : {
            promptTokens: usage.prompt_tokens,
            cachedTokens: usage.cached_tokens,
            completionTokens: usage.completion_tokens,
            reasoningTokens: usage.reasoning_tokens,
          },
    promptTokens: settings.prompt_tokens,
  };
}

type Chunk = NonNullable<ScriptSettings['chunk']>;

function stepOf(step: ScriptSettings['say'][number], chunk: Chunk): ScriptStep {
  if ('reasoning' in step) return { type: 'reasoning', pieces: pieces(step.reasoning, chunk) };
  if ('text' in step) return { type: 'text', pieces: pieces(step.text, chunk) };
  const { name, arguments: args = {} } = step.tool_call;
  const json = typeof args === 'string' || Array.isArray(args) ? args : JSON.stringify(args);
  return { type: 'tool-call', name, arguments: pieces(json, chunk) };
}

function pieces(said: string | readonly string[], chunk: Chunk): readonly string[] {
  if (typeof said !== 'string') return said.filter((piece) => piece !== '');
  switch (chunk) {
    case 'word':
      return words(said);
    case 'character':
      return [...said];
    case 'whole':
      return said === '' ? [] : [said];
  }
}

function pieceCount(step: ScriptStep): number {
  return step.type === 'tool-call' ? 1 + step.arguments.length : step.pieces.length;
}
