import assert from 'node:assert/strict';

/** An item of output on the wire. */
export interface WireItem {
  readonly id: string;
  readonly type: string;
  readonly status?: string;
  readonly role?: string;
  readonly content?: readonly { readonly type: string; readonly text: string; readonly logprobs: readonly unknown[] }[];
  readonly summary?: readonly { readonly type: string; readonly text: string }[];
  readonly encrypted_content?: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
}

export interface WireUsage {
  readonly input_tokens: number;
  readonly input_tokens_details: { readonly cached_tokens: number; readonly cache_write_tokens: number };
  readonly output_tokens: number;
  readonly output_tokens_details: { readonly reasoning_tokens: number };
  readonly total_tokens: number;
}

/** A Response on the wire. */
export interface WireResponse extends Readonly<Record<string, unknown>> {
  readonly id: string;
  readonly status: string;
  readonly output: readonly WireItem[];
  readonly usage: WireUsage | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly incomplete_details: { readonly reason: string } | null;
}

/** An event on the wire. */
export interface WireEvent extends Readonly<Record<string, unknown>> {
  readonly type: string;
  readonly sequence_number: number;
  readonly output_index?: number;
  readonly item_id?: string;
  readonly item?: WireItem;
  readonly part?: { readonly type: string; readonly text: string };
  readonly delta?: string;
  readonly text?: string;
  readonly arguments?: string;
  readonly logprobs?: readonly unknown[];
  readonly response?: WireResponse;
  readonly error?: Readonly<Record<string, unknown>>;
}

/** The keys that every Response has (contracts §1.3, Open Responses). */
export const responseKeys = [
  'id',
  'object',
  'created_at',
  'completed_at',
  'status',
  'error',
  'incomplete_details',
  'instructions',
  'max_output_tokens',
  'max_tool_calls',
  'model',
  'output',
  'parallel_tool_calls',
  'previous_response_id',
  'prompt_cache_key',
  'reasoning',
  'safety_identifier',
  'service_tier',
  'store',
  'background',
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'top_logprobs',
  'text',
  'tool_choice',
  'tools',
  'truncation',
  'usage',
  'metadata',
];

/** The events of a stream, framed as contracts §1.0 says; comments are left out. */
export function eventsOf(sse: string): readonly WireEvent[] {
  const lines = sse.replaceAll(/^:.*\n\n/gm, '');
  assert.ok(lines.endsWith('\n\n'), 'the stream ends with an empty line');
  const texts = lines.slice(0, -2).split('\n\n');
  assert.equal(texts.pop(), 'data: [DONE]', 'the stream ends with [DONE]');
  return texts.map((text, index) => {
    const [first = '', second = '', ...others] = text.split('\n');
    assert.deepEqual(others, []);
    assert.ok(second.startsWith('data: '), text);
    const event = JSON.parse(second.slice('data: '.length)) as WireEvent;
    assert.equal(first, `event: ${event.type}`, 'the name of the event is its type');
    assert.equal(event.sequence_number, index, 'events are numbered without gaps');
    return event;
  });
}

/** What a client has read of a stream that ended, and what it ended with. */
export interface ReadStream {
  readonly events: readonly WireEvent[];
  readonly response: WireResponse;
  /** The `error` event, when the answer failed. */
  readonly error: WireEvent | undefined;
}

/**
 * Reads a stream as clients do, and holds it to the order of contracts §1.3 on the way: an item is opened, grows by its deltas,
 * is closed with what they add up to, and stands like that in the last Response.
 */
export function readResponseStream(sse: string): ReadStream {
  const events = [...eventsOf(sse)];
  const all = [...events];
  const created = events.shift();
  assert.equal(created?.type, 'response.created');
  const inProgress = events.shift();
  assert.equal(inProgress?.type, 'response.in_progress');
  assert.deepEqual(inProgress.response, created.response);
  assert.equal(created.response?.status, 'in_progress');
  assert.deepEqual(created.response.output, []);
  const last = events.pop();
  const response = last?.response;
  assert.ok(last && response, 'the last event has the Response');
  assert.equal(last.type, `response.${response.status}`);
  let error: WireEvent | undefined;
  if (response.status === 'failed') {
    error = events.pop();
    assert.equal(error?.type, 'error', 'response.failed follows an error');
  } else assert.match(response.status, /^(completed|incomplete)$/);
  for (const key of ['id', 'created_at', 'model', 'tools', 'text', 'metadata'])
    assert.deepEqual(response[key], created.response[key]);
  for (const one of [response, created.response])
    assert.deepEqual(
      Object.keys(one)
        .filter((key) => key !== 'user')
        .toSorted(),
      responseKeys.toSorted(),
    );

  const items: WireItem[] = [];
  while (events.length > 0) items.push(readItem(events, items.length, response.status === 'failed'));
  assert.deepEqual(items, response.output);
  return { events: all, response, error };
}

function readItem(events: WireEvent[], index: number, mayBreak: boolean): WireItem {
  const next = (type: string): WireEvent => {
    const event = events.shift();
    assert.equal(event?.type, type);
    assert.equal(event.output_index, index);
    return event;
  };
  const added = next('response.output_item.added').item;
  assert.ok(added);
  const [start, delta, end] = {
    message: ['response.content_part.added', 'response.output_text.delta', 'response.output_text.done'],
    reasoning: [
      'response.reasoning_summary_part.added',
      'response.reasoning_summary_text.delta',
      'response.reasoning_summary_text.done',
    ],
    function_call: [undefined, 'response.function_call_arguments.delta', 'response.function_call_arguments.done'],
  }[added.type] ?? [undefined, '', ''];
  assert.ok(delta && end, `an item of type ${added.type}`);
  const inside: WireEvent[] = [];
  if (start !== undefined) {
    const part = next(start);
    assert.equal(part.part?.text, '');
    inside.push(part);
  }
  let text = '';
  const logprobs: unknown[] = [];
  while (events[0]?.type === delta) {
    const grown = next(delta);
    inside.push(grown);
    text += grown.delta;
    logprobs.push(...(grown.logprobs ?? []));
  }
  // What broke off in the middle is never closed; the last Response has as much of it as came.
  if (events.length === 0 && mayBreak) return incompleteItem(added, text);
  const done = next(end);
  inside.push(done);
  assert.equal(done.type === 'response.function_call_arguments.done' ? done.arguments : done.text, text);
  if (start !== undefined) {
    const part = next(start.replace(/added$/, 'done'));
    inside.push(part);
    assert.equal(part.part?.text, text);
  }
  for (const event of inside) assert.equal(event.item_id, added.id);
  const { item } = next('response.output_item.done');
  assert.ok(item);
  assert.equal(item.id, added.id);
  assert.equal(item.type, added.type);
  assert.equal(textOf(item), text);
  if (added.type === 'message') assert.equal(done.logprobs?.length, item.content?.[0]?.logprobs.length);
  return item;
}

function incompleteItem(added: WireItem, text: string): WireItem {
  switch (added.type) {
    case 'message':
      return {
        ...added,
        status: 'incomplete',
        content: [{ type: 'output_text', text, annotations: [], logprobs: [] } as never],
      };
    case 'reasoning':
      return { ...added, summary: [{ type: 'summary_text', text }], status: 'incomplete' };
    default:
      return { ...added, status: 'incomplete', arguments: text };
  }
}

/** What a client shows of an item, whatever its kind. */
export function textOf(item: WireItem): string {
  switch (item.type) {
    case 'message':
      return item.content?.map(({ text }) => text).join('') ?? '';
    case 'reasoning':
      return item.summary?.map(({ text }) => text).join('') ?? '';
    default:
      return item.arguments ?? '';
  }
}
