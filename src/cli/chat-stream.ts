import { SseReader } from '../inference/engines/openai/sse.ts';
import { CommandFailure } from './command-failure.ts';
import { reach, refusal } from './chat-request.ts';
import { exitCodes } from './failure.ts';

export interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

export interface ChatRequest {
  /** Base address of the service, without `/v1`. */
  readonly url: string;
  readonly key: string;
  readonly model: string;
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly messages: readonly Message[];
}

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number };
}

/** Receives the pieces of an answer as they arrive. */
export interface AnswerReader {
  readonly reasoning: (text: string) => void;
  readonly text: (text: string) => void;
}

export interface Answer {
  readonly text: string;
  readonly reasoning: string;
  readonly finish: string | undefined;
  readonly requestId: string | undefined;
  readonly firstTokenMs: number | undefined;
  readonly totalMs: number;
  /** Undefined if the answer was cut off. */
  readonly usage: Usage | undefined;
  /** Whether the signal ended it. */
  readonly isCancelled: boolean;
  /** The error object that ended the stream. */
  readonly error: unknown;
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string | null; readonly reasoning_content?: string | null };
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: Usage | null;
  readonly error?: unknown;
}

/** Sends the request, and passes on each piece of the answer as it arrives. Throws if the request is refused before an answer begins. */
export async function streamAnswer(request: ChatRequest, signal: AbortSignal, to: AnswerReader): Promise<Answer> {
  const startedAt = performance.now();
  let text = '';
  let reasoning = '';
  let finish: string | undefined;
  let firstTokenMs: number | undefined;
  let usage: Usage | undefined;
  let error: unknown;
  let isDone = false;
  let requestId: string | undefined;
  const reader = new SseReader((data) => {
    if (data === '[DONE]') {
      isDone = true;
      return;
    }
    const chunk = JSON.parse(data) as Chunk;
    error ??= chunk.error;
    usage = chunk.usage ?? usage;
    for (const { delta, finish_reason: reason } of chunk.choices ?? []) {
      finish = reason ?? finish;
      const thought = delta?.reasoning_content ?? '';
      const piece = delta?.content ?? '';
      if (thought === '' && piece === '') continue;
      firstTokenMs ??= performance.now() - startedAt;
      reasoning += thought;
      text += piece;
      if (thought !== '') to.reasoning(thought);
      if (piece !== '') to.text(piece);
    }
  });
  const answerOf = (isCancelled: boolean): Answer => ({
    text,
    reasoning,
    finish,
    requestId,
    firstTokenMs,
    totalMs: performance.now() - startedAt,
    usage,
    isCancelled,
    error,
  });
  try {
    const response = await reach(request.url, '/v1/chat/completions', {
      method: 'POST',
      signal,
      headers: { authorization: `Bearer ${request.key}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: request.model,
        messages: request.messages,
        stream: true,
        stream_options: { include_usage: true },
        ...(request.maxTokens === undefined ? {} : { max_tokens: request.maxTokens }),
        ...(request.temperature === undefined ? {} : { temperature: request.temperature }),
      }),
    });
    requestId = response.headers.get('x-request-id') ?? undefined;
    if (!response.ok || response.body === null) {
      const body: unknown = await response.json().catch(() => undefined);
      throw refusal((body as { readonly error?: unknown } | undefined)?.error, request.url);
    }
    for await (const bytes of response.body) reader.push(Buffer.from(bytes as Uint8Array));
  } catch (failure) {
    if (signal.aborted) return answerOf(true);
    if (failure instanceof CommandFailure) throw failure;
    throw brokenOff(requestId);
  }
  if (!isDone && error === undefined) throw brokenOff(requestId);
  return answerOf(false);
}

const brokenOff = (requestId: string | undefined): CommandFailure =>
  new CommandFailure({
    what: [`The answer ended unexpectedly${requestId === undefined ? '' : ` (${requestId})`}.`],
    why: 'the connection closed before the end of the answer',
    repair: ['tokenhouse usage --limit 1', 'ask again'],
    exitCode: exitCodes.unavailable,
  });
