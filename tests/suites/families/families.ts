import assert from 'node:assert/strict';

/**
 * The API families as their clients speak them, so that a test can say one thing to all of them and read one answer: what a
 * client sends for a conversation, and what it makes of what comes back, whole or streamed.
 */
export interface Family {
  readonly name: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** A body without a prompt is invalid; this one has the smallest. `fields` are common words, see `Asked`. */
  body(asked: Asked): Readonly<Record<string, unknown>>;
  readWhole(json: string): Read;
  readStream(sse: string): Read;
  /** The inner object of an error answer. */
  errorOf(json: string): ErrorShown;
  /** How a stream ends that cannot go on (contracts §1.0); throws when it is not so. */
  streamErrorOf(sse: string): ErrorShown;
}

export interface ErrorShown {
  readonly code: string;
  readonly type: string;
  readonly message: string;
  readonly param?: string | null;
  readonly request_id?: string;
}

/** What is asked, in no family's words. */
export interface Asked {
  readonly model: string;
  readonly turns: readonly Turn[];
  readonly stream?: boolean;
  readonly maxTokens?: number;
  readonly tools?: readonly Tool[];
  /** Whether the model is to see what it thought in earlier turns; on messages it always is. */
  readonly keepsThoughts?: boolean;
  readonly stop?: readonly string[];
  /** Further fields as this family calls them. */
  readonly more?: Readonly<Record<string, unknown>>;
}

export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Readonly<Record<string, unknown>>;
}

export type Turn =
  | { readonly role: 'system' | 'user'; readonly text: string }
  | AssistantTurn
  | { readonly role: 'tool'; readonly results: readonly { readonly id: string; readonly text: string }[] };

export interface AssistantTurn {
  readonly role: 'assistant';
  readonly thought: Thought | undefined;
  readonly text: string;
  readonly calls: readonly Call[];
}

export interface Thought {
  readonly text: string;
  /** What the family attached to it; another family cannot send it. */
  readonly signature: { readonly family: string; readonly value: string } | undefined;
}

export interface Call {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/** An answer, as a client keeps it for the next request, and what it learns of its cost and end. */
export interface Read extends AssistantTurn {
  readonly usage: Usage;
  readonly finish: string;
}

export interface Usage {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
  readonly reasoning: number;
}

type Json = Readonly<Record<string, any>>; // oxlint-disable-line typescript/no-explicit-any

const parse = (json: string): Json => JSON.parse(json) as Json;
const signatureOf = ({ signature }: Thought, family: string): string | undefined =>
  signature?.family === family ? signature.value : undefined;

/** Events of a stream: their names, absent where the family gives none, and their data. */
function eventsOf(sse: string): readonly { readonly name: string | undefined; readonly data: string }[] {
  return sse
    .split('\n\n')
    .filter((event) => event.includes('data: '))
    .map((event) => {
      const lines = event.split('\n');
      const valueOf = (field: string): string | undefined =>
        lines.find((line) => line.startsWith(`${field}: `))?.slice(field.length + 2);
      return { name: valueOf('event'), data: valueOf('data') ?? '' };
    });
}

const plainErrorOf = (json: string): ErrorShown => {
  const body = parse(json);
  assert.deepEqual(Object.keys(body), ['error']);
  return body['error'] as ErrorShown;
};

/** Chat and completions: a line of its own, then `[DONE]`, and no usage. */
function plainStreamErrorOf(sse: string): ErrorShown {
  const events = eventsOf(sse);
  assert.equal(events.at(-1)?.data, '[DONE]');
  assert.ok(!sse.includes('"usage":{'), 'no usage is shown for an answer that failed');
  return plainErrorOf(events.at(-2)?.data ?? '');
}

const openAiUsage = (usage: Json): Usage => ({
  prompt: usage['prompt_tokens'],
  cached: usage['prompt_tokens_details'].cached_tokens,
  completion: usage['completion_tokens'],
  reasoning: usage['completion_tokens_details'].reasoning_tokens,
});

export const chat: Family = {
  name: 'chat',
  path: '/v1/chat/completions',
  headers: {},
  body: ({ model, turns, stream, maxTokens, tools, keepsThoughts, stop, more }) => ({
    model,
    messages: turns.flatMap((turn): readonly Json[] => {
      switch (turn.role) {
        case 'system':
        case 'user':
          return [{ role: turn.role, content: turn.text }];
        case 'assistant':
          return [
            {
              role: 'assistant',
              content: turn.text === '' ? null : turn.text,
              ...(turn.thought === undefined ? {} : { reasoning_content: turn.thought.text }),
              ...(turn.calls.length === 0
                ? {}
                : {
                    tool_calls: turn.calls.map((call) => ({
                      id: call.id,
                      type: 'function',
                      function: { name: call.name, arguments: call.arguments },
                    })),
                  }),
            },
          ];
        case 'tool':
          return turn.results.map(({ id, text }) => ({ role: 'tool', tool_call_id: id, content: text }));
      }
    }),
    ...(stream === true ? { stream } : {}),
    ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
    ...(tools === undefined ? {} : { tools: tools.map((tool) => ({ type: 'function', function: tool })) }),
    ...(keepsThoughts === true ? { preserve_thinking: true } : {}),
    ...(stop === undefined ? {} : { stop }),
    ...more,
  }),
  readWhole(json) {
    const { choices, usage } = parse(json);
    const { message, finish_reason } = choices[0];
    return {
      role: 'assistant',
      thought:
        message.reasoning_content === null ? undefined : { text: message.reasoning_content, signature: undefined },
      text: message.content ?? '',
      calls: (message.tool_calls ?? []).map((call: Json): Call => ({
        id: call['id'],
        name: call['function'].name,
        arguments: call['function'].arguments,
      })),
      usage: openAiUsage(usage),
      finish: finish_reason,
    };
  },
  readStream(sse) {
    const chunks = eventsOf(sse).filter(({ data }) => data !== '[DONE]');
    assert.equal(eventsOf(sse).at(-1)?.data, '[DONE]');
    let text = '';
    let thought = '';
    let finish = '';
    let usage: Usage | undefined;
    const calls: { id: string; name: string; arguments: string }[] = [];
    for (const { data } of chunks) {
      const chunk = parse(data);
      if (chunk['usage'] !== undefined) usage = openAiUsage(chunk['usage']);
      for (const { delta, finish_reason } of chunk['choices']) {
        text += delta.content ?? '';
        thought += delta.reasoning_content ?? '';
        for (const call of delta.tool_calls ?? []) {
          calls[call.index] ??= { id: call.id, name: call.function.name, arguments: '' };
          calls[call.index]!.arguments += call.function.arguments ?? '';
        }
        finish = finish_reason ?? finish;
      }
    }
    assert.ok(usage);
    return {
      role: 'assistant',
      thought: thought === '' ? undefined : { text: thought, signature: undefined },
      text,
      calls,
      usage,
      finish,
    };
  },
  errorOf: plainErrorOf,
  streamErrorOf: plainStreamErrorOf,
};

const messagesUsage = (usage: Json): Usage => ({
  prompt: usage['input_tokens'] + usage['cache_creation_input_tokens'] + usage['cache_read_input_tokens'],
  cached: usage['cache_read_input_tokens'],
  completion: usage['output_tokens'],
  reasoning: usage['output_tokens_details'].thinking_tokens,
});

function turnOfBlocks(blocks: readonly Json[]): AssistantTurn {
  const thinking = blocks.find(({ type }) => type === 'thinking');
  return {
    role: 'assistant',
    thought:
      thinking === undefined
        ? undefined
        : { text: thinking['thinking'], signature: { family: 'messages', value: thinking['signature'] } },
    text: blocks.map((block) => (block['type'] === 'text' ? String(block['text']) : '')).join(''),
    calls: blocks.flatMap((block): readonly Call[] =>
      block['type'] === 'tool_use'
        ? [{ id: block['id'], name: block['name'], arguments: JSON.stringify(block['input']) }]
        : [],
    ),
  };
}

export const messages: Family = {
  name: 'messages',
  path: '/v1/messages',
  headers: { 'anthropic-version': '2023-06-01' },
  body: ({ model, turns, stream, maxTokens = 1_000, tools, stop, more }) => ({
    model,
    max_tokens: maxTokens,
    messages: turns.map((turn): Json => {
      switch (turn.role) {
        case 'system':
        case 'user':
          return { role: turn.role, content: turn.text };
        case 'assistant': {
          const signature = turn.thought && signatureOf(turn.thought, 'messages');
          return {
            role: 'assistant',
            content: [
              ...(turn.thought === undefined
                ? []
                : [
                    {
                      type: 'thinking',
                      thinking: turn.thought.text,
                      ...(signature === undefined ? {} : { signature }),
                    },
                  ]),
              ...(turn.text === '' ? [] : [{ type: 'text', text: turn.text }]),
              ...turn.calls.map((call) => ({
                type: 'tool_use',
                id: call.id,
                name: call.name,
                input: JSON.parse(call.arguments) as unknown,
              })),
            ],
          };
        }
        case 'tool':
          return {
            role: 'user',
            content: turn.results.map(({ id, text }) => ({ type: 'tool_result', tool_use_id: id, content: text })),
          };
      }
    }),
    ...(stream === true ? { stream } : {}),
    ...(tools === undefined
      ? {}
      : {
          tools: tools.map(({ name, description, parameters }) => ({ name, description, input_schema: parameters })),
        }),
    ...(stop === undefined ? {} : { stop_sequences: stop }),
    ...more,
  }),
  readWhole(json) {
    const { content, stop_reason, usage } = parse(json);
    return { ...turnOfBlocks(content), usage: messagesUsage(usage), finish: stop_reason };
  },
  readStream(sse) {
    const blocks: Record<string, unknown>[] = [];
    const inputs: string[] = [];
    let usage: Usage | undefined;
    let finish = '';
    const names: string[] = [];
    for (const { name = '', data } of eventsOf(sse)) {
      const event = parse(data);
      assert.equal(event['type'], name);
      names.push(name);
      switch (name) {
        case 'content_block_start':
          blocks[event['index']] = { ...event['content_block'] };
          inputs[event['index']] = '';
          break;
        case 'content_block_delta': {
          const block = blocks[event['index']]!;
          const { type, text, thinking, signature, partial_json } = event['delta'];
          if (type === 'text_delta') block['text'] += text;
          if (type === 'thinking_delta') block['thinking'] += thinking;
          if (type === 'signature_delta') block['signature'] = signature;
          if (type === 'input_json_delta') inputs[event['index']] += partial_json;
          break;
        }
        case 'content_block_stop':
          if (blocks[event['index']]!['type'] === 'tool_use')
            blocks[event['index']]!['input'] = JSON.parse(inputs[event['index']]!);
          break;
        case 'message_delta':
          usage = messagesUsage(event['usage']);
          finish = event['delta'].stop_reason;
          break;
      }
    }
    assert.equal(names[0], 'message_start');
    assert.equal(names.at(-1), 'message_stop');
    assert.ok(usage);
    return { ...turnOfBlocks(blocks), usage, finish };
  },
  errorOf(json) {
    const body = parse(json);
    assert.equal(body['type'], 'error');
    return body['error'] as ErrorShown;
  },
  streamErrorOf(sse) {
    const events = eventsOf(sse);
    const last = events.at(-1);
    assert.equal(last?.name, 'error');
    assert.ok(!events.some(({ name }) => name === 'message_stop' || name === 'message_delta'));
    return messages.errorOf(last.data);
  },
};

const responsesUsage = (usage: Json): Usage => ({
  prompt: usage['input_tokens'],
  cached: usage['input_tokens_details'].cached_tokens,
  completion: usage['output_tokens'],
  reasoning: usage['output_tokens_details'].reasoning_tokens,
});

function turnOfItems(items: readonly Json[]): AssistantTurn {
  const reasoning = items.find(({ type }) => type === 'reasoning');
  return {
    role: 'assistant',
    thought:
      reasoning === undefined
        ? undefined
        : {
            text: reasoning['summary'].map(({ text }: Json) => String(text)).join(''),
            signature:
              reasoning['encrypted_content'] === undefined
                ? undefined
                : { family: 'responses', value: reasoning['encrypted_content'] },
          },
    text: items
      .flatMap((item) => (item['type'] === 'message' ? item['content'] : []))
      .map(({ text }: Json) => String(text))
      .join(''),
    calls: items.flatMap((item): readonly Call[] =>
      item['type'] === 'function_call'
        ? [{ id: item['call_id'], name: item['name'], arguments: item['arguments'] }]
        : [],
    ),
  };
}

const endOfResponse = (response: Json): string => response['incomplete_details']?.reason ?? response['status'];

export const responses: Family = {
  name: 'responses',
  path: '/v1/responses',
  headers: {},
  body: ({ model, turns, stream, maxTokens, tools, keepsThoughts, stop, more }) => ({
    model,
    store: false,
    include: ['reasoning.encrypted_content'],
    input: turns.flatMap((turn, index): readonly Json[] => {
      switch (turn.role) {
        case 'system':
        case 'user':
          return [{ role: turn.role, content: turn.text }];
        case 'assistant': {
          const encrypted = turn.thought && signatureOf(turn.thought, 'responses');
          return [
            ...(turn.thought === undefined
              ? []
              : [
                  {
                    type: 'reasoning',
                    id: `rs_${index}`,
                    summary: [{ type: 'summary_text', text: turn.thought.text }],
                    ...(encrypted === undefined ? {} : { encrypted_content: encrypted }),
                  },
                ]),
            ...(turn.text === ''
              ? []
              : [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text: turn.text }] }]),
            ...turn.calls.map((call) => ({
              type: 'function_call',
              call_id: call.id,
              name: call.name,
              arguments: call.arguments,
            })),
          ];
        }
        case 'tool':
          return turn.results.map(({ id, text }) => ({ type: 'function_call_output', call_id: id, output: text }));
      }
    }),
    ...(stream === true ? { stream } : {}),
    ...(maxTokens === undefined ? {} : { max_output_tokens: maxTokens }),
    ...(tools === undefined ? {} : { tools: tools.map((tool) => ({ type: 'function', ...tool })) }),
    ...(keepsThoughts === true ? { preserve_thinking: true } : {}),
    ...(stop === undefined ? {} : { stop }),
    ...more,
  }),
  readWhole(json) {
    const response = parse(json);
    return {
      ...turnOfItems(response['output']),
      usage: responsesUsage(response['usage']),
      finish: endOfResponse(response),
    };
  },
  readStream(sse) {
    const events = eventsOf(sse);
    assert.equal(events.at(-1)?.data, '[DONE]');
    // Some clients build their history of these events alone (contracts §1.3).
    const items: Json[] = [];
    let response: Json | undefined;
    events.slice(0, -1).forEach(({ name, data }, index) => {
      const event = parse(data);
      assert.equal(event['type'], name);
      assert.equal(event['sequence_number'], index);
      if (name === 'response.output_item.done') items[event['output_index']] = event['item'];
      if (name === 'response.completed' || name === 'response.incomplete') response = event['response'];
    });
    assert.ok(response);
    assert.deepEqual(response['output'], items);
    return { ...turnOfItems(items), usage: responsesUsage(response['usage']), finish: endOfResponse(response) };
  },
  errorOf: plainErrorOf,
  streamErrorOf(sse) {
    const events = eventsOf(sse);
    const [error, failed, done] = events.slice(-3);
    assert.equal(error?.name, 'error');
    assert.equal(failed?.name, 'response.failed');
    assert.equal(done?.data, '[DONE]');
    const reported = parse(error.data);
    const { response } = parse(failed.data);
    assert.equal(response.status, 'failed');
    assert.ok(typeof response.error.code === 'string' && typeof response.error.message === 'string');
    assert.deepEqual([reported['code'], reported['message']], [reported['error'].code, reported['error'].message]);
    return reported['error'] as ErrorShown;
  },
};

/** The families that hold a conversation. */
export const conversing: readonly Family[] = [chat, messages, responses];

/** A text without turns: what is asked is the text of the turns, one after the other. */
export const completions: Family = {
  name: 'completions',
  path: '/v1/completions',
  headers: {},
  body: ({ model, turns, stream, maxTokens = 1_000, stop, more }) => ({
    model,
    prompt: turns.map((turn) => ('text' in turn ? turn.text : '')).join('\n'),
    ...(stream === true ? { stream } : {}),
    max_tokens: maxTokens,
    ...(stop === undefined ? {} : { stop }),
    ...more,
  }),
  readWhole(json) {
    const { choices, usage } = parse(json);
    const { text, finish_reason } = choices[0];
    return { role: 'assistant', thought: undefined, text, calls: [], usage: openAiUsage(usage), finish: finish_reason };
  },
  readStream(sse) {
    const events = eventsOf(sse);
    assert.equal(events.at(-1)?.data, '[DONE]');
    let text = '';
    let finish = '';
    let usage: Usage | undefined;
    for (const { data } of events.slice(0, -1)) {
      const chunk = parse(data);
      if (chunk['usage'] !== undefined) usage = openAiUsage(chunk['usage']);
      for (const choice of chunk['choices']) {
        text += choice.text;
        finish = choice.finish_reason ?? finish;
      }
    }
    assert.ok(usage);
    return { role: 'assistant', thought: undefined, text, calls: [], usage, finish };
  },
  errorOf: plainErrorOf,
  streamErrorOf: plainStreamErrorOf,
};

export const families: readonly Family[] = [chat, completions, messages, responses];

/** What a client gets when an answer is `length`, by the name of the family. */
export const lengthWords: Readonly<Record<string, string>> = {
  chat: 'length',
  completions: 'length',
  messages: 'max_tokens',
  responses: 'max_output_tokens',
};
