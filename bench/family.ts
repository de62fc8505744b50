/** One conversation as an API family says it, and where the text is in its answers. */
export interface Family {
  readonly name: string;
  readonly path: string;
  readonly headers: readonly string[];
  /** The field of answers and events that holds the text, and a word that ends a stream. */
  readonly textField: { readonly whole: string; readonly stream: string };
  readonly done: string;
  body(turns: readonly Turn[], isStream: boolean): Readonly<Record<string, unknown>>;
}

export interface Turn {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

const sampling = { temperature: 0.7, top_p: 0.95 };

export const chat: Family = {
  name: 'chat',
  path: '/v1/chat/completions',
  headers: [],
  textField: { whole: 'content', stream: 'content' },
  done: '[DONE]',
  body: (messages, isStream) => ({
    messages,
    ...sampling,
    max_tokens: 256,
    ...(isStream ? { stream: true, stream_options: { include_usage: true } } : { stream: false }),
  }),
};

export const families: readonly Family[] = [
  chat,
  {
    name: 'completions',
    path: '/v1/completions',
    headers: [],
    textField: { whole: 'text', stream: 'text' },
    done: '[DONE]',
    body: (turns, stream) => ({
      prompt: turns.map(({ content }) => content).join('\n'),
      ...sampling,
      max_tokens: 256,
      stream,
    }),
  },
  {
    name: 'messages',
    path: '/v1/messages',
    headers: ['anthropic-version: 2023-06-01'],
    textField: { whole: 'text', stream: 'text' },
    done: 'message_stop',
    body: ([system, ...messages], stream) => ({
      system: system?.content,
      messages,
      ...sampling,
      max_tokens: 256,
      stream,
    }),
  },
  {
    name: 'responses',
    path: '/v1/responses',
    headers: [],
    // The whole text comes again at the end of a stream, in fields of another name.
    textField: { whole: 'text', stream: 'delta' },
    done: '[DONE]',
    body: ([system, ...input], stream) => ({
      instructions: system?.content,
      input,
      ...sampling,
      max_output_tokens: 256,
      store: false,
      stream,
    }),
  },
];
