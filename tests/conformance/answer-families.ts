/** What a client of each family that answers conversations reads of an answer, streamed and whole, in one shape. */
import { chatFormat } from '../../src/inference/dialects/chat/chat.ts';
import { completions } from '../../src/inference/dialects/completions/completions.ts';
import type { AnswerFormat } from '../../src/inference/dialects/dialect.ts';
import { messages } from '../../src/inference/dialects/messages/messages.ts';
import { responses } from '../../src/inference/dialects/responses/responses.ts';
import { readChatCompletion, readChatStream } from './chat-reader.ts';
import { readCompletion, readCompletionStream } from './completions-reader.ts';
import { readMessageStream } from './messages-reader.ts';
import { readResponseStream } from './responses-reader.ts';

export interface GivenCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

export interface GivenChoice {
  readonly reasoning: string;
  readonly text: string;
  readonly calls: readonly GivenCall[];
  readonly finish: 'stop' | 'length' | 'tool-calls';
}

/** The counts that a client is shown. */
export interface GivenUsage {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
  readonly reasoning: number;
}

export interface Given {
  readonly choices: readonly GivenChoice[];
  readonly usage: GivenUsage;
}

export interface AnswerFamily {
  readonly path: string;
  readonly format: AnswerFormat;
  /** A stream, whose form is checked on the way. */
  streamed(sse: string): Given;
  whole(json: string): Given;
}

interface Item {
  readonly type: string;
  readonly id?: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly input?: unknown;
  readonly text?: string;
  readonly thinking?: string;
  readonly content?: readonly { readonly text?: string }[];
  readonly summary?: readonly { readonly text?: string }[];
}

interface OpenAiUsage {
  readonly prompt_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
  readonly completion_tokens: number;
  readonly completion_tokens_details: { readonly reasoning_tokens: number };
}

const ofOpenAiUsage = (raw: unknown): GivenUsage => {
  const usage = raw as OpenAiUsage;
  return {
    prompt: usage.prompt_tokens,
    cached: usage.prompt_tokens_details.cached_tokens,
    completion: usage.completion_tokens,
    reasoning: usage.completion_tokens_details.reasoning_tokens,
  };
};

const ofChat = ({ choices, usage }: ReturnType<typeof readChatStream>): Given => ({
  choices: choices
    .toSorted((a, b) => a.index - b.index)
    .map(({ content, reasoning, toolCalls, finishReason }) => ({
      reasoning,
      text: content,
      calls: toolCalls.map(({ id, name, arguments: own }) => ({ id, name, arguments: own })),
      finish: finishReason === 'tool_calls' ? 'tool-calls' : (finishReason as 'stop' | 'length'),
    })),
  usage: ofOpenAiUsage(usage),
});

const joined = (parts: readonly { readonly text?: string }[]): string => parts.map(({ text = '' }) => text).join('');

interface Message {
  readonly content: readonly Item[];
  readonly stop_reason: string;
  readonly usage: {
    readonly input_tokens: number;
    readonly cache_read_input_tokens: number;
    readonly output_tokens: number;
    readonly output_tokens_details: { readonly thinking_tokens: number };
  };
}

const ofMessage = ({ content, stop_reason: reason, usage }: Message): Given => ({
  choices: [
    {
      reasoning: content.map(({ thinking = '' }) => thinking).join(''),
      text: joined(content),
      calls: content.flatMap(({ type, id = '', name = '', input }) =>
        type === 'tool_use' ? [{ id: id.replace('toolu_', 'call_'), name, arguments: JSON.stringify(input) }] : [],
      ),
      finish: reason === 'tool_use' ? 'tool-calls' : reason === 'max_tokens' ? 'length' : 'stop',
    },
  ],
  usage: {
    prompt: usage.input_tokens + usage.cache_read_input_tokens,
    cached: usage.cache_read_input_tokens,
    completion: usage.output_tokens,
    reasoning: usage.output_tokens_details.thinking_tokens,
  },
});

interface Response {
  readonly output: readonly Item[];
  readonly status: string;
  readonly usage: {
    readonly input_tokens: number;
    readonly input_tokens_details: { readonly cached_tokens: number };
    readonly output_tokens: number;
    readonly output_tokens_details: { readonly reasoning_tokens: number };
  };
}

function ofResponse({ output, status, usage }: Response): Given {
  const calls = output.flatMap(({ type, call_id: id = '', name = '', arguments: own = '' }) =>
    type === 'function_call' ? [{ id, name, arguments: own }] : [],
  );
  return {
    choices: [
      {
        reasoning: output.map(({ summary = [] }) => joined(summary)).join(''),
        text: output.flatMap(({ content = [] }) => content.map(({ text = '' }) => text)).join(''),
        calls,
        // This family does not say that an answer ends with calls.
        finish: status === 'incomplete' ? 'length' : calls.length > 0 ? 'tool-calls' : 'stop',
      },
    ],
    usage: {
      prompt: usage.input_tokens,
      cached: usage.input_tokens_details.cached_tokens,
      completion: usage.output_tokens,
      reasoning: usage.output_tokens_details.reasoning_tokens,
    },
  };
}

export const chatFamilies: Readonly<Record<'chat' | 'messages' | 'responses', AnswerFamily>> = {
  chat: {
    path: '/v1/chat/completions',
    format: chatFormat,
    streamed: (sse) => ofChat(readChatStream(sse)),
    whole: (json) => ofChat(readChatCompletion(json)),
  },
  messages: {
    path: '/v1/messages',
    format: messages.decodeRequest(
      { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'x' }] },
      { headers: { 'anthropic-version': '2023-06-01' }, items: undefined },
    ).format,
    streamed: (sse) => ofMessage(readMessageStream(sse, '2023-06-01').message as never),
    whole: (json) => ofMessage(JSON.parse(json) as never),
  },
  responses: {
    path: '/v1/responses',
    format: responses.decodeRequest({ model: 'm', input: 'hi' }, { headers: {}, items: undefined }).format,
    streamed: (sse) => ofResponse(readResponseStream(sse).response as never),
    whole: (json) => ofResponse(JSON.parse(json) as never),
  },
};

const ofCompletion = ({ choices, usage }: ReturnType<typeof readCompletion>): Given => ({
  choices: choices.map(({ text, finishReason }) => ({
    reasoning: '',
    text,
    calls: [],
    finish: finishReason as 'stop' | 'length',
  })),
  usage: ofOpenAiUsage(usage),
});

export const completionFamily: AnswerFamily = {
  path: '/v1/completions',
  format: completions.decodeRequest({ model: 'm', prompt: 'hi' }, { headers: {}, items: undefined }).format,
  streamed: (sse) => ofCompletion(readCompletionStream(sse)),
  whole: (json) => ofCompletion(readCompletion(json)),
};
