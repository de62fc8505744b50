import type { SeenUsage } from './load.ts';

/** How the clients of one API family ask, and what they see of an answer. */
export interface LoadWire {
  readonly path: string;
  body(model: string, text: string, stream: boolean): string;
  /** What ends every stream, also one that failed. */
  readonly streamEnds: RegExp;
  /** The usage of a whole answer, or of a stream; `undefined` when it ended in an error. */
  usageOf(body: string, stream: boolean): SeenUsage | undefined;
  /** The code of the error that a stream ended in. */
  errorOf(body: string): string | undefined;
}

interface ChatUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
}
interface OtherUsage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cache_read_input_tokens?: number;
}

/** The last event before the end, or the whole answer. */
const lastOf = (body: string, stream: boolean, ending: RegExp): unknown =>
  JSON.parse((stream ? ending.exec(body)?.[1] : body) ?? 'null');

const doneEvent = /data: \[DONE\]\n\n$/;
const beforeDone = /(?:^|\n)data: (.*)\n\ndata: \[DONE\]\n\n$/;

const ofChat = (body: string, stream: boolean): SeenUsage | undefined => {
  const { usage } = lastOf(body, stream, beforeDone) as { usage?: ChatUsage };
  return usage && { promptTokens: usage.prompt_tokens, completionTokens: usage.completion_tokens };
};
const ofOthers = (usage: OtherUsage | null | undefined): SeenUsage | undefined =>
  usage
    ? {
        promptTokens: usage.input_tokens + (usage.cache_read_input_tokens ?? 0),
        completionTokens: usage.output_tokens,
      }
    : undefined;

const errorOf = (body: string): string | undefined =>
  /\ndata: \{(?:"type":"error",.*?)?"error":\{.*?"code":"(\w+)"/.exec(`\n${body}`)?.[1];

export const loadWires: readonly LoadWire[] = [
  {
    path: '/v1/chat/completions',
    body: (model, text, stream) => JSON.stringify({ model, stream, messages: [{ role: 'user', content: text }] }),
    streamEnds: doneEvent,
    usageOf: ofChat,
    errorOf,
  },
  {
    path: '/v1/messages',
    body: (model, text, stream) =>
      JSON.stringify({ model, stream, max_tokens: 4000, messages: [{ role: 'user', content: text }] }),
    streamEnds: /event: (message_stop|error)\ndata: .*\n\n$/,
    usageOf: (body, stream) => {
      if (!stream) return ofOthers((JSON.parse(body) as { usage: OtherUsage }).usage);
      const delta = /event: message_delta\ndata: (.*)\n\nevent: message_stop\n/.exec(body)?.[1];
      return delta === undefined ? undefined : ofOthers((JSON.parse(delta) as { usage: OtherUsage }).usage);
    },
    errorOf,
  },
  {
    path: '/v1/responses',
    body: (model, text, stream) => JSON.stringify({ model, stream, input: text }),
    streamEnds: doneEvent,
    usageOf: (body, stream) => {
      const last = lastOf(body, stream, beforeDone) as { type?: string; response?: { usage: OtherUsage | null } };
      if (!stream) return ofOthers((last as { usage?: OtherUsage }).usage);
      return last.type === 'response.failed' ? undefined : ofOthers(last.response?.usage);
    },
    errorOf,
  },
];

/** Not every backend takes texts. */
export const textWire: LoadWire = {
  path: '/v1/completions',
  body: (model, text, stream) => JSON.stringify({ model, stream, prompt: text, max_tokens: 4000 }),
  streamEnds: doneEvent,
  usageOf: ofChat,
  errorOf,
};
