import { callsOf, textOf } from '../conversation.ts';
import type { Attachment, ToolChoice, Turn } from '../conversation.ts';
import { readError } from './chat.ts';
import { at, countAt, listAt, objectOf, sent, stringAt } from './family.ts';
import type { Delta, Family } from './family.ts';

/** This family wants a number in any case. */
export const usualMaxTokens = 4096;

/** `POST /v1/messages`. */
export const messages: Family = {
  name: 'messages',
  title: 'Messages',
  path: '/v1/messages',
  body: ({ model, stream, system, turns, tools, toolChoice, format, parameters }) => {
    const { max_tokens: maxTokens = usualMaxTokens, temperature, top_p, top_k, stop, effort } = parameters;
    const output = sent({
      effort: effort === 'none' ? undefined : effort,
      format: format.kind === 'json_schema' ? { type: 'json_schema', schema: format.schema } : undefined,
    });
    return sent({
      model,
      max_tokens: maxTokens,
      system: system === '' ? undefined : system,
      messages: turns.flatMap(messagesOf),
      stream: stream || undefined,
      temperature,
      top_p,
      top_k,
      stop_sequences: stop,
      // Without it the model does as it is used to.
      thinking: effort === undefined ? undefined : { type: effort === 'none' ? 'disabled' : 'adaptive' },
      output_config: Object.keys(output).length === 0 ? undefined : output,
      ...(tools.length === 0
        ? {}
        : {
            tools: tools.map(({ name, description, parameters: schema = { type: 'object' } }) =>
              sent({ name, description, input_schema: schema }),
            ),
            tool_choice: toolChoice === 'auto' ? undefined : { type: choices[toolChoice] },
          }),
    });
  },
  readEvent: ({ name }, json) => readEvent(stringAt(json, 'type') ?? name, json),
  readWhole: (json) => [
    ...listAt(json, 'content').flatMap((block, index) => [
      ...readBlock(block, String(index)),
      ...wholeInput(block, index),
    ]),
    ...finish(stringAt(json, 'stop_reason')),
    ...readUsage(json, 'usage'),
    ...readError(json),
  ],
};

const choices = { auto: 'auto', none: 'none', required: 'any' } as const satisfies Readonly<Record<ToolChoice, string>>;

function messagesOf(turn: Turn): readonly unknown[] {
  if (turn.kind === 'user')
    return [
      {
        role: 'user',
        content:
          turn.attachments.length === 0
            ? turn.text
            : [...turn.attachments.map(partOf), ...(turn.text === '' ? [] : [{ type: 'text', text: turn.text }])],
      },
    ];
  const calls = callsOf(turn);
  const text = textOf(turn);
  const said = text === '' ? [] : [{ type: 'text', text }];
  if (calls.length === 0) return text === '' ? [] : [{ role: 'assistant', content: said }];
  return [
    {
      role: 'assistant',
      content: [
        ...said,
        ...calls.map(({ id, name, arguments: written }) => ({ type: 'tool_use', id, name, input: objectOf(written) })),
      ],
    },
    {
      role: 'user',
      content: calls.map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: turn.results[id] ?? '' })),
    },
  ];
}

const partOf = (attachment: Attachment): unknown =>
  attachment.kind === 'image'
    ? { type: 'image', source: { type: 'base64', media_type: attachment.mediaType, data: attachment.base64 } }
    : { type: 'document', source: { type: 'file', file_id: attachment.fileId } };

function readEvent(type: string, json: unknown): readonly Delta[] {
  const index = String(countAt(json, 'index'));
  switch (type) {
    case 'content_block_start':
      return readBlock(at(json, 'content_block'), index);
    case 'content_block_delta': {
      const delta = at(json, 'delta');
      const text = stringAt(delta, 'text');
      const thinking = stringAt(delta, 'thinking');
      const input = stringAt(delta, 'partial_json');
      return [
        ...(text ? [{ kind: 'text', text } as const] : []),
        ...(thinking ? [{ kind: 'reasoning', text: thinking } as const] : []),
        ...(input ? [{ kind: 'arguments', call: index, text: input } as const] : []),
      ];
    }
    case 'message_delta':
      return [...finish(stringAt(json, 'delta', 'stop_reason')), ...readUsage(json, 'usage')];
    case 'error':
      return readError(json);
    default:
      return [];
  }
}

/** What a block has when it begins, and all of a whole one but its input. */
function readBlock(block: unknown, index: string): readonly Delta[] {
  const text = stringAt(block, 'text');
  const thinking = stringAt(block, 'thinking');
  const id = stringAt(block, 'id');
  switch (stringAt(block, 'type')) {
    case 'text':
      return text ? [{ kind: 'text', text }] : [];
    case 'thinking':
      return thinking ? [{ kind: 'reasoning', text: thinking }] : [];
    case 'tool_use':
      return id === undefined ? [] : [{ kind: 'call', call: index, id, name: stringAt(block, 'name') ?? '' }];
    case undefined:
    default:
      return [];
  }
}

const wholeInput = (block: unknown, index: number): readonly Delta[] =>
  stringAt(block, 'type') === 'tool_use'
    ? [{ kind: 'arguments', call: String(index), text: JSON.stringify(at(block, 'input') ?? {}) }]
    : [];

const finish = (reason: string | undefined): readonly Delta[] =>
  reason === undefined ? [] : [{ kind: 'finish', reason }];

/** On this wire the input is without what was cached. */
function readUsage(json: unknown, ...path: readonly string[]): readonly Delta[] {
  const usage = at(json, ...path);
  if (typeof usage !== 'object' || usage === null) return [];
  const cached = countAt(usage, 'cache_read_input_tokens');
  return [
    {
      kind: 'usage',
      usage: {
        prompt: countAt(usage, 'input_tokens') + cached,
        cached,
        completion: countAt(usage, 'output_tokens'),
        reasoning: countAt(usage, 'output_tokens_details', 'thinking_tokens'),
      },
    },
  ];
}
