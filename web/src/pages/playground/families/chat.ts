import { callsOf, textOf } from '../conversation.ts';
import type { Asked, Attachment, Turn } from '../conversation.ts';
import { at, countAt, listAt, sent, stringAt } from './family.ts';
import type { Delta, Family } from './family.ts';

/** `POST /v1/chat/completions`. */
export const chat: Family = {
  name: 'chat',
  title: 'Chat completions',
  path: '/v1/chat/completions',
  body: ({ model, stream, system, turns, tools, toolChoice, format, parameters }) => {
    const { effort, ...others } = parameters;
    return sent({
      model,
      messages: [...(system === '' ? [] : [{ role: 'system', content: system }]), ...turns.flatMap(messagesOf)],
      stream: stream || undefined,
      ...others,
      reasoning_effort: effort,
      ...(tools.length === 0
        ? {}
        : {
            tools: tools.map((tool) => ({ type: 'function', function: tool })),
            tool_choice: toolChoice === 'auto' ? undefined : toolChoice,
          }),
      response_format: formatOf(format),
    });
  },
  readEvent: (_, json) => [...readChoice(at(json, 'choices', 0), 'delta'), ...readUsage(json), ...readError(json)],
  readWhole: (json) => [...readChoice(at(json, 'choices', 0), 'message'), ...readUsage(json), ...readError(json)],
};

/** Of chat completions and completions. */
export const formatOf = (format: Asked['format']): unknown =>
  format.kind === 'text'
    ? undefined
    : format.kind === 'json_object'
      ? { type: 'json_object' }
      : { type: 'json_schema', json_schema: { name: 'answer', schema: format.schema } };

/** Reasoning is left out: most servers do not take it back. */
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
  if (calls.length === 0) return text === '' ? [] : [{ role: 'assistant', content: text }];
  return [
    {
      role: 'assistant',
      content: text === '' ? null : text,
      tool_calls: calls.map((call) => ({
        id: call.id,
        type: 'function',
        function: { name: call.name, arguments: call.arguments },
      })),
    },
    ...calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: turn.results[id] ?? '' })),
  ];
}

const partOf = (attachment: Attachment): unknown =>
  attachment.kind === 'image'
    ? { type: 'image_url', image_url: { url: dataUrlOf(attachment) } }
    : { type: 'file', file: { file_id: attachment.fileId } };

export const dataUrlOf = ({ mediaType, base64 }: Extract<Attachment, { kind: 'image' }>): string =>
  `data:${mediaType};base64,${base64}`;

/** `holder` is where a choice has its content: a delta of a stream, or a whole message. */
function readChoice(choice: unknown, holder: 'delta' | 'message'): readonly Delta[] {
  const deltas: Delta[] = [];
  const reasoning = stringAt(choice, holder, 'reasoning_content');
  if (reasoning) deltas.push({ kind: 'reasoning', text: reasoning });
  const text = stringAt(choice, holder, 'content');
  if (text) deltas.push({ kind: 'text', text });
  listAt(choice, holder, 'tool_calls').forEach((call, place) => {
    // Of a stream the index tells them apart; a whole message has none.
    const key = String(holder === 'delta' ? countAt(call, 'index') : place);
    const id = stringAt(call, 'id');
    if (id !== undefined) deltas.push({ kind: 'call', call: key, id, name: stringAt(call, 'function', 'name') ?? '' });
    const more = stringAt(call, 'function', 'arguments');
    if (more) deltas.push({ kind: 'arguments', call: key, text: more });
  });
  const finish = stringAt(choice, 'finish_reason');
  if (finish !== undefined) deltas.push({ kind: 'finish', reason: finish });
  return deltas;
}

/** Of chat completions and completions. */
export function readUsage(json: unknown): readonly Delta[] {
  const usage = at(json, 'usage');
  if (typeof usage !== 'object' || usage === null) return [];
  return [
    {
      kind: 'usage',
      usage: {
        prompt: countAt(usage, 'prompt_tokens'),
        cached: countAt(usage, 'prompt_tokens_details', 'cached_tokens'),
        completion: countAt(usage, 'completion_tokens'),
        reasoning: countAt(usage, 'completion_tokens_details', 'reasoning_tokens'),
      },
    },
  ];
}

/** Of every family but responses, which name it in two events. */
export const readError = (json: unknown): readonly Delta[] => {
  const error = at(json, 'error');
  return error === undefined || error === null ? [] : [{ kind: 'error', error }];
};
