import Type from 'typebox';
import type { ErrorCode } from '../../../platform/errors.ts';
import { words, type ScriptRule, type ScriptStep } from './script.ts';

/** Codes that an engine may fail with; the others would blame the client falsely. */
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

const strict = { additionalProperties: false } as const;
const milliseconds = (description: string) => Type.Integer({ minimum: 0, maximum: 3_600_000, description, default: 0 });
/** A text is cut into words; a list is played piece by piece, unchanged. */
const text = (description: string) =>
  Type.Union([Type.String(), Type.Array(Type.String(), { maxItems: 100_000 })], { description });

/** One rule of `scripts` in tokenhouse.yaml. */
export const scriptSchema = Type.Object(
  {
    when: Type.Optional(
      Type.Object(
        {
          model: Type.Optional(Type.String({ description: 'id of the model' })),
          last_text: Type.Optional(Type.String({ description: 'a part of the text of the last message' })),
          last_role: Type.Optional(
            Type.Union(
              [Type.Literal('system'), Type.Literal('user'), Type.Literal('assistant'), Type.Literal('tool')],
              {
                description: 'role of the last message',
              },
            ),
          ),
          tools: Type.Optional(Type.Boolean({ description: 'whether tools are offered' })),
          turn: Type.Optional(
            Type.Integer({ minimum: 0, description: 'how many assistant messages the conversation has' }),
          ),
        },
        { ...strict, description: 'Conditions, all of which must hold. A rule without them always applies.' },
      ),
    ),
    say: Type.Array(
      Type.Union([
        Type.Object({ reasoning: text('thought; cut into words, or a list of pieces as they stand') }, strict),
        Type.Object({ text: text('said; cut into words, or a list of pieces as they stand') }, strict),
        Type.Object(
          {
            tool_call: Type.Object(
              {
                name: Type.String({ minLength: 1, maxLength: 256, description: 'called' }),
                arguments: Type.Optional(
                  Type.Union([text('JSON, whole or in pieces'), Type.Record(Type.String(), Type.Unknown())], {
                    description: 'with these arguments',
                    default: {},
                  }),
                ),
              },
              strict,
            ),
          },
          strict,
        ),
      ]),
      { maxItems: 1_000, description: 'What is said, in order.' },
    ),
    repeat: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 1_000_000, description: 'how often `say` is played', default: 1 }),
    ),
    first_token_ms: Type.Optional(milliseconds('wait before the first token')),
    pace_ms: Type.Optional(milliseconds('time between tokens')),
    chunk: Type.Optional(
      Type.Union([Type.Literal('word'), Type.Literal('character'), Type.Literal('whole')], {
        description: 'how texts are cut into tokens; `character` with a long pace is a slow drip',
        default: 'word',
      }),
    ),
    fault: Type.Optional(
      Type.Object(
        {
          after_tokens: Type.Integer({ minimum: 0, description: 'something goes wrong after so many tokens' }),
          type: Type.Union([Type.Literal('cut'), Type.Literal('hang'), Type.Literal('error')], {
            description: 'ends without a finish, falls silent, or fails with the code',
          }),
          code: Type.Optional(
            Type.Enum(faultCodes, { description: 'code of the error', default: 'backend_http_error' }),
          ),
        },
        {
          ...strict,
          description: 'Ends without a finish, falls silent, or fails, after so many tokens of each choice.',
        },
      ),
    ),
    usage: Type.Optional(
      Type.Union(
        [
          Type.Literal('none'),
          Type.Object(
            {
              prompt_tokens: Type.Optional(Type.Unknown()),
              cached_tokens: Type.Optional(Type.Unknown()),
              completion_tokens: Type.Optional(Type.Unknown()),
              reasoning_tokens: Type.Optional(Type.Unknown()),
            },
            strict,
          ),
        ],
        { description: 'figures to report instead of the true ones, possible or not; none reports nothing' },
      ),
    ),
    prompt_tokens: Type.Optional(
      Type.Integer({ minimum: 0, description: 'length of the prompt, instead of counting' }),
    ),
  },
  strict,
);

export type ScriptSettings = Type.Static<typeof scriptSchema>;

/** Most tokens that one rule may play. */
const tokensMax = 1_000_000;

/** The rule in the engine's own form. Throws a readable `RangeError` for errors that the schema cannot express. */
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
      usage === undefined || usage === 'none'
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
