import assert from 'node:assert/strict';

import { newRequestId } from './raw-client.ts';
import type { TestService } from './service.ts';

export interface ChatAnswer {
  readonly choices: readonly {
    readonly message: {
      readonly content: string | null;
      readonly tool_calls?: readonly { readonly id: string; readonly function: { readonly arguments: string } }[];
    };
    readonly finish_reason: string;
  }[];
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
}

interface Refused {
  readonly status: number;
  readonly code: unknown;
  readonly param: unknown;
  readonly body: Readonly<Record<string, unknown>>;
}

export type Client = ReturnType<typeof clientOf>;

/** Requests to the service, about the model `real` unless they name another. */
export function clientOf(service: TestService) {
  const send = (route: string, fields: object, signal?: AbortSignal) => {
    const requestId = newRequestId();
    const response = fetch(`${service.url}/v1${route}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${service.key}`,
        'x-request-id': requestId,
      },
      body: JSON.stringify({ model: 'real', ...fields }),
      signal: signal ?? null,
    });
    return Promise.resolve({ requestId, response });
  };
  const ask = async (route: string, fields: object): Promise<{ readonly status: number; readonly text: string }> => {
    const { response } = await send(route, fields);
    const answer = await response;
    return { status: answer.status, text: await answer.text() };
  };
  const json = async (route: string, fields: object): Promise<Readonly<Record<string, unknown>>> => {
    const { status, text } = await ask(route, fields);
    assert.equal(status, 200, `${JSON.stringify(fields)}: ${text}`);
    return JSON.parse(text) as Record<string, unknown>;
  };
  return {
    send,
    json,
    chat: async (fields: object) => (await json('/chat/completions', fields)) as unknown as ChatAnswer,
    /** Text and finish of the first choice, of chat and of a continued text. */
    answer: async (route: string, fields: object): Promise<{ readonly text: string; readonly finish: string }> => {
      const { choices } = (await json(route, fields)) as unknown as {
        choices: readonly {
          readonly text?: string;
          readonly message?: { readonly content: string };
          readonly finish_reason: string;
        }[];
      };
      const [{ text, message, finish_reason: finish }] = choices as readonly [(typeof choices)[number]];
      return { text: text ?? message?.content ?? '', finish };
    },
    refused: async (route: string, fields: object): Promise<Refused> => {
      const { status, text } = await ask(route, fields);
      assert.notEqual(status, 200, text);
      const { error } = JSON.parse(text) as { error: Readonly<Record<string, unknown>> };
      return { status, code: error['code'], param: error['param'], body: error };
    },
    /** A streamed chat answer: its text, the arguments of its calls in a row, and its finish. */
    stream: async (
      fields: object,
    ): Promise<{ readonly text: string; readonly calls: string; readonly finish: string }> => {
      const { status, text } = await ask('/chat/completions', { ...fields, stream: true });
      assert.equal(status, 200, text);
      const found = { text: '', calls: '', finish: '' };
      for (const [, data = ''] of text.matchAll(/^data: (\{.*)$/gm)) {
        const [choice] = (JSON.parse(data) as { choices: StreamChoice[] }).choices;
        found.text += choice?.delta.content ?? '';
        for (const call of choice?.delta.tool_calls ?? []) found.calls += call.function.arguments ?? '';
        found.finish = choice?.finish_reason ?? found.finish;
      }
      return found;
    },
  };
}

interface StreamChoice {
  readonly delta: {
    readonly content?: string | null;
    readonly tool_calls?: readonly { readonly function: { readonly arguments?: string } }[];
  };
  readonly finish_reason: string | null;
}
