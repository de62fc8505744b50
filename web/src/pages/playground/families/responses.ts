import { callsOf, textOf } from '../conversation.ts';
import type { Asked, Attachment, Turn } from '../conversation.ts';
import { dataUrlOf } from './chat.ts';
import { at, countAt, listAt, sent, stringAt } from './family.ts';
import type { Delta, Family } from './family.ts';

/** `POST /v1/responses`. Nothing is stored: each request has the whole conversation. */
export const responses: Family = {
  name: 'responses',
  title: 'Responses',
  path: '/v1/responses',
  body: ({ model, stream, system, turns, tools, toolChoice, format, parameters }) => {
    const { max_tokens: maxTokens, effort, ...others } = parameters;
    return sent({
      model,
      instructions: system === '' ? undefined : system,
      input: turns.flatMap(itemsOf),
      store: false,
      stream: stream || undefined,
      max_output_tokens: maxTokens,
      ...others,
      reasoning: effort === undefined ? undefined : { effort },
      ...(tools.length === 0
        ? {}
        : {
            tools: tools.map((tool) => ({ type: 'function', ...tool })),
            tool_choice: toolChoice === 'auto' ? undefined : toolChoice,
          }),
      text: formatOf(format),
    });
  },
  readEvent: ({ name }, json) => readEvent(stringAt(json, 'type') ?? name, json),
  readWhole: (json) => [
    ...listAt(json, 'output').flatMap((item, index) => readItem(item, String(index))),
    ...readEnd(json),
  ],
};

const formatOf = (format: Asked['format']): unknown =>
  format.kind === 'text'
    ? undefined
    : {
        format:
          format.kind === 'json_object'
            ? { type: 'json_object' }
            : { type: 'json_schema', name: 'answer', schema: format.schema },
      };

function itemsOf(turn: Turn): readonly unknown[] {
  if (turn.kind === 'user')
    return [
      {
        role: 'user',
        content: [
          ...turn.attachments.map(partOf),
          ...(turn.text === '' ? [] : [{ type: 'input_text', text: turn.text }]),
        ],
      },
    ];
  const calls = callsOf(turn);
  const text = textOf(turn);
  return [
    ...(text === '' ? [] : [{ role: 'assistant', content: [{ type: 'output_text', text }] }]),
    ...calls.map(({ id, name, arguments: written }) => ({
      type: 'function_call',
      call_id: id,
      name,
      arguments: written,
    })),
    ...calls.map(({ id }) => ({ type: 'function_call_output', call_id: id, output: turn.results[id] ?? '' })),
  ];
}

const partOf = (attachment: Attachment): unknown =>
  attachment.kind === 'image'
    ? { type: 'input_image', image_url: dataUrlOf(attachment) }
    : { type: 'input_file', file_id: attachment.fileId };

function readEvent(type: string, json: unknown): readonly Delta[] {
  const call = String(countAt(json, 'output_index'));
  const text = stringAt(json, 'delta');
  switch (type) {
    case 'response.output_text.delta':
      return text ? [{ kind: 'text', text }] : [];
    case 'response.reasoning_summary_text.delta':
    case 'response.reasoning_text.delta':
      return text ? [{ kind: 'reasoning', text }] : [];
    case 'response.output_item.added':
      return stringAt(json, 'item', 'type') === 'function_call' ? readItem(at(json, 'item'), call) : [];
    case 'response.function_call_arguments.delta':
      return text ? [{ kind: 'arguments', call, text }] : [];
    case 'response.completed':
    case 'response.incomplete':
    case 'response.failed':
      return readEnd(at(json, 'response'));
    default:
      return [];
  }
}

function readItem(item: unknown, call: string): readonly Delta[] {
  switch (stringAt(item, 'type')) {
    case 'message':
      return [
        {
          kind: 'text',
          text: listAt(item, 'content')
            .map((part) => stringAt(part, 'text') ?? '')
            .join(''),
        },
      ];
    case 'reasoning':
      return [
        {
          kind: 'reasoning',
          text: listAt(item, 'summary')
            .map((part) => stringAt(part, 'text') ?? '')
            .join(''),
        },
      ];
    case 'function_call': {
      const id = stringAt(item, 'call_id');
      if (id === undefined) return [];
      const written = stringAt(item, 'arguments');
      return [
        { kind: 'call', call, id, name: stringAt(item, 'name') ?? '' },
        ...(written ? [{ kind: 'arguments', call, text: written } as const] : []),
      ];
    }
    case undefined:
    default:
      return [];
  }
}

/** Of the whole response, which the last event has as well. */
function readEnd(response: unknown): readonly Delta[] {
  const status = stringAt(response, 'status');
  const error = at(response, 'error');
  const usage = at(response, 'usage');
  return [
    ...(status === undefined
      ? []
      : [{ kind: 'finish', reason: stringAt(response, 'incomplete_details', 'reason') ?? status } as const]),
    ...(typeof usage === 'object' && usage !== null
      ? [
          {
            kind: 'usage',
            usage: {
              prompt: countAt(usage, 'input_tokens'),
              cached: countAt(usage, 'input_tokens_details', 'cached_tokens'),
              completion: countAt(usage, 'output_tokens'),
              reasoning: countAt(usage, 'output_tokens_details', 'reasoning_tokens'),
            },
          } as const,
        ]
      : []),
    ...(error === undefined || error === null ? [] : [{ kind: 'error', error } as const]),
  ];
}
